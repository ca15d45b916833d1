package main

import (
	"context"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sox-host/sox-host/host"
)

func diffCommand() *command {
	var req host.UpgradeRequest
	var exitCode bool
	return &command{
		name:    "diff",
		args:    "NAME",
		minArgs: 1,
		maxArgs: 1,
		short:   "Show what another version would change for clients",
		help: `Starts the version that sox-host upgrade would choose, or the one of --to, compares what
it lists with what the active one lists, and stops it again. Nothing is changed.

Examples:
  sox-host diff notes
  sox-host diff notes --to 1.2.0 --exit-code
`,
		exits: []host.Exit{
			host.ExitDone, host.ExitFailed, host.ExitUsage, host.ExitNotFound, host.ExitVerify, host.ExitRefused,
			host.ExitDeadline, host.ExitBusy, host.ExitPending,
		},
		means: map[host.Exit]string{
			host.ExitFailed:  "the other version does not start, or lists what no client takes",
			host.ExitPending: "there is a difference, with --exit-code",
		},
		flags: func(fs *pflag.FlagSet) {
			fs.StringVar(&req.To, "to", "", "compare with exactly this `version`")
			fs.BoolVar(&req.Prerelease, "pre", false, prereleaseUsage)
			fs.BoolVar(&exitCode, "exit-code", false, "exit 10 when there is a difference")
		},
		run: func(ctx context.Context, c *call) error {
			if err := c.folders(); err != nil {
				return err
			}
			req.DryRun, req.AllowDowngrade, req.AllowBreaking = true, true, true
			shown := newProgress(c.stderr)
			report, err := host.Roll(ctx, host.RollOptions{
				Home:       c.home,
				PluginsDir: c.pluginsDir,
				Plugins:    c.args,
				Request:    req,
				Progress:   shown.step,
			})
			shown.clear()
			c.suggestPlugins(&report)
			c.suggestPrereleases("diff", &report, req)
			if err != nil {
				return err
			}
			return printDiff(c, report.Plugins[0], exitCode)
		},
	}
}

// diffResult is the result with --json.
type diffResult struct {
	Exit     host.Exit `json:"exit"`
	Plugin   string    `json:"plugin"`
	From     string    `json:"from,omitempty"`
	To       string    `json:"to,omitempty"`
	Schema   string    `json:"schema,omitempty"` // "+1 ~1 -0"
	Changes  []string  `json:"changes"`
	Breaking []string  `json:"breaking"`
	Error    string    `json:"error,omitempty"`
}

func printDiff(c *call, p host.PluginRoll, exitCode bool) error {
	r := p.Report
	result := diffResult{
		Exit: p.Exit, Plugin: p.Plugin, From: r.From, To: r.To, Schema: r.Schema, Error: p.Error,
		Changes: append([]string{}, r.Changes...), Breaking: append([]string{}, r.Breaking...),
	}
	differs := len(r.Changes)+len(r.Breaking) > 0 || r.Schema != "" && strings.Trim(r.Schema, "+~- 0") != ""
	if exitCode && p.Exit == host.ExitDone && differs {
		result.Exit = host.ExitPending
	}
	switch {
	case c.json:
		if err := c.printJSON(result); err != nil {
			return err
		}
	case p.Exit != host.ExitDone:
		c.printf("%s  %s\n", p.Plugin, strings.Join(outcome(c, p, host.UpgradeRequest{DryRun: true}), "   "))
	default:
		if header := movement(r); header != "" {
			c.printf("%s  %s   schema %s\n", p.Plugin, header, oneLine(r.Schema))
		}
		for _, change := range r.Changes {
			c.printf("  %s\n", oneLine(change))
		}
		for _, breaking := range r.Breaking {
			c.printf("  breaking: %s\n", oneLine(breaking))
		}
		if !differs {
			c.printf("%s  no difference for clients\n", p.Plugin)
		}
	}
	return exitWith(result.Exit)
}

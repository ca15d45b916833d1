package main

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sox-host/sox-host/host"
)

// askFlags are what tools and call have in common.
type askFlags struct {
	private bool
	timeout time.Duration
}

func (f *askFlags) declare(fs *pflag.FlagSet) {
	fs.BoolVar(&f.private, "private", false, "ask a process of its own, even if a host is running")
	fs.DurationVar(&f.timeout, "timeout", host.DefaultAskTimeout, "how long to wait for the answer")
}

// options begins a question.
func (f *askFlags) options(c *call) (host.AskOptions, error) {
	if f.timeout <= 0 {
		return host.AskOptions{}, usagef("--timeout must be above zero")
	}
	err := c.folders()
	return host.AskOptions{Home: c.home, PluginsDir: c.pluginsDir, Private: f.private, Guard: guardLine(), Timeout: f.timeout}, err
}

func toolsCommand() *command {
	var f askFlags
	return &command{
		name:    "tools",
		args:    "[NAME]",
		maxArgs: 1,
		short:   "List the tools that a client sees",
		help: `Asks the running host. Without one the lists come from the cache of the last start, and
a plugin that has none there is started for a moment. Beside the name that clients see
stands read for a tool that only reads, and idempotent for one that may be called twice.

Examples:
  sox-host tools
  sox-host tools notes --json | jq '.tools[].inputSchema'
`,
		exits: []host.Exit{host.ExitDone, host.ExitFailed, host.ExitUsage, host.ExitNotFound, host.ExitRefused, host.ExitDeadline, host.ExitBusy},
		means: map[host.Exit]string{host.ExitFailed: "no tools, since plugins could not be started", host.ExitBusy: "the host answers too many such questions"},
		flags: f.declare,
		run: func(ctx context.Context, c *call) error {
			o, err := f.options(c)
			if err != nil {
				return err
			}
			o.Plugin = strings.Join(c.args, "")
			return runTools(ctx, c, o)
		},
	}
}

type toolsResult struct {
	Exit     host.Exit         `json:"exit"`
	Host     int               `json:"host,omitempty"` // process id; absent without a running host
	Tools    []json.RawMessage `json:"tools"`
	Problems []string          `json:"problems,omitempty"`
}

func runTools(ctx context.Context, c *call, o host.AskOptions) error {
	answer, err := host.Ask(ctx, o)
	if err != nil {
		return err
	}
	result := toolsResult{Host: answer.PID, Tools: answer.Tools, Problems: answer.Problems}
	if result.Tools == nil {
		result.Tools = []json.RawMessage{}
	}
	if len(result.Tools) == 0 && len(result.Problems) > 0 {
		result.Exit = host.ExitFailed
	}
	if c.json {
		if err := c.printJSON(result); err != nil {
			return err
		}
		return exitWith(result.Exit)
	}
	t := newTable(c.stdout)
	for _, raw := range result.Tools {
		var tool struct {
			Name, Description string
			Annotations       struct{ ReadOnlyHint, IdempotentHint bool }
		}
		if err := json.Unmarshal(raw, &tool); err != nil {
			continue // the host has checked them: not reached
		}
		note := "-"
		switch {
		case tool.Annotations.ReadOnlyHint:
			note = "read"
		case tool.Annotations.IdempotentHint:
			note = "idempotent"
		}
		first, _, _ := strings.Cut(strings.TrimSpace(tool.Description), "\n")
		t.row(tool.Name, note, first)
	}
	t.print()
	if len(result.Tools) > 0 && len(result.Problems) > 0 {
		c.printf("\nThere may be more, since:\n")
	}
	for _, problem := range result.Problems {
		c.printf("%s\n", oneLine(problem))
	}
	if len(result.Tools) == 0 && len(result.Problems) == 0 {
		c.printf("no tools\n")
	}
	return exitWith(result.Exit)
}

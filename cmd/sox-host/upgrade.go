package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sox-host/sox-host/host"
)

// What flags of several commands say.
const (
	drainUsage      = "how long an old version may go on with the calls it has (default: the plugin's setting, else 30s)"
	prereleaseUsage = "consider prereleases too, such as 1.3.0-rc.1"
)

// rollFlags are what upgrade, rollback and restart have in common.
type rollFlags struct {
	all, exitCode         bool
	drainTimeout, timeout time.Duration
	settle                time.Duration
	req                   host.UpgradeRequest
}

func (f *rollFlags) declare(fs *pflag.FlagSet) {
	fs.BoolVar(&f.all, "all", false, "all plugins, each independent of the others")
	fs.DurationVar(&f.drainTimeout, "drain-timeout", 0, drainUsage)
	fs.DurationVar(&f.settle, "settle", host.DefaultSettle, "how long the new version is watched before success is reported, with the old one kept warm; 0 reports at once")
	fs.DurationVar(&f.timeout, "timeout", 0, "limit for everything up to the commit (default: the plugin's start timeout and 30s)")
}

func (f *rollFlags) declareDryRun(fs *pflag.FlagSet) {
	fs.BoolVar(&f.req.DryRun, "dry-run", false, "try everything up to the commit, and change nothing")
}

// rollExits are the codes that a roll can end with.
var rollExits = []host.Exit{
	host.ExitDone, host.ExitFailed, host.ExitUsage, host.ExitNotFound, host.ExitVerify, host.ExitRefused,
	host.ExitDeadline, host.ExitPartial, host.ExitBusy,
}

// stillServes is what ExitFailed means where something may serve.
const stillServes = "it failed; what served before still serves"

func upgradeCommand() *command {
	var f rollFlags
	return &command{
		name:    "upgrade",
		args:    "NAME... | --all",
		maxArgs: -1,
		short:   "Replace a running plugin by another version, without losing a call",
		help: `Starts the new version beside the old one, compares what they offer, commits the
choice, sends new calls to the new one, and lets the old one finish what it has.
Whatever fails before the commit leaves the old version serving. A crash within the
first half minute goes back by itself. All running hosts of the plugins folder
follow, the oldest first; if one fails, all go back. Without a running host the new
version is tried here and is what the next host runs.

The version is the highest release in the plugins folder, within the constraint of
the plugin's settings, unless --to names one.

Examples:
  sox-host upgrade notes
  sox-host upgrade notes --to 1.2.0 --allow-downgrade
  sox-host upgrade notes --constraint '>= 1.2, < 2'
  sox-host upgrade --all --dry-run --exit-code
`,
		exits: append(append([]host.Exit(nil), rollExits...), host.ExitPending),
		means: map[host.Exit]string{host.ExitFailed: stillServes, host.ExitPending: "there is something to upgrade, with --dry-run --exit-code"},
		flags: func(fs *pflag.FlagSet) {
			f.declare(fs)
			f.declareDryRun(fs)
			fs.StringVar(&f.req.To, "to", "", "go to exactly this `version`")
			fs.StringVar(&f.req.Constraint, "constraint", "", "go to the highest version that meets this `constraint`, such as '~> 1.2'")
			fs.BoolVar(&f.req.Prerelease, "pre", false, prereleaseUsage)
			fs.BoolVar(&f.req.AllowDowngrade, "allow-downgrade", false, "accept a lower version than the active one")
			fs.BoolVar(&f.req.AllowBreaking, "allow-breaking", false, "accept that tools vanish or ask for more than before")
			fs.BoolVar(&f.exitCode, "exit-code", false, "with --dry-run: exit 10 when there is something to upgrade")
		},
		run: func(ctx context.Context, c *call) error {
			switch {
			case f.req.To != "" && f.all:
				return usagef("--to names one version and --all many plugins: upgrade them one by one")
			case f.req.To != "" && f.req.Constraint != "":
				return usagef("--to and --constraint exclude each other")
			case len(c.args) == 2 && isVersion(c.args[1]):
				return usagef("takes names of plugins, and %s is a version: sox-host upgrade %s --to %s", c.args[1], shellQuote(c.args[0]), c.args[1])
			case f.exitCode && !f.req.DryRun:
				return usagef("--exit-code asks whether there is something to upgrade: it needs --dry-run")
			}
			return f.roll(ctx, c)
		},
	}
}

func rollbackCommand() *command {
	f := rollFlags{req: host.UpgradeRequest{Rollback: true}}
	return &command{
		name:    "rollback",
		args:    "NAME... | --all",
		maxArgs: -1,
		short:   "Go back to the build that was active before",
		help: `Works like an upgrade, to the previous build: its bytes are still in the store, even
if its file is gone. A second rollback undoes the first.

Examples:
  sox-host rollback notes
  sox-host rollback notes --dry-run
`,
		exits: rollExits,
		means: map[host.Exit]string{host.ExitFailed: stillServes},
		meant: func(args []string) string {
			for _, arg := range args {
				if flag, _, _ := strings.Cut(arg, "="); flag == "--to" || flag == "--version" {
					return ": to a version that is named leads sox-host upgrade NAME --to VERSION --allow-downgrade"
				}
			}
			return ""
		},
		flags: func(fs *pflag.FlagSet) {
			f.declare(fs)
			f.declareDryRun(fs)
		},
		run: func(ctx context.Context, c *call) error { return f.roll(ctx, c) },
	}
}

func restartCommand() *command {
	f := rollFlags{req: host.UpgradeRequest{Restart: true}}
	return &command{
		name:    "restart",
		args:    "NAME... | --all",
		maxArgs: -1,
		short:   "Replace a running plugin by a fresh process of the same build",
		help: `Starts the same build again beside the running one, sends new calls to it, and lets
the old process finish. Use it after changing a plugin's settings, or when a plugin
misbehaves.

Examples:
  sox-host restart notes
  sox-host restart --all --drain-timeout 5s
`,
		exits: append(append([]host.Exit(nil), rollExits...), host.ExitNoHost),
		means: map[host.Exit]string{host.ExitFailed: stillServes},
		flags: f.declare,
		run:   func(ctx context.Context, c *call) error { return f.roll(ctx, c) },
	}
}

func (f *rollFlags) roll(ctx context.Context, c *call) error {
	switch {
	case f.all && len(c.args) > 0:
		return usagef("--all takes no names")
	case !f.all && len(c.args) == 0:
		return usagef("needs the NAME of a plugin, or --all")
	case f.drainTimeout < 0 || f.timeout < 0:
		return usagef("a time limit cannot be negative")
	}
	if err := c.folders(); err != nil {
		return err
	}
	if f.req.SettleMS = f.settle.Milliseconds(); f.settle <= 0 {
		f.req.SettleMS = -1 // in a request 0 is the default
	}
	f.req.DrainTimeoutMS, f.req.TimeoutMS = f.drainTimeout.Milliseconds(), f.timeout.Milliseconds()
	shown := newProgress(c.stderr)
	report, err := host.Roll(ctx, host.RollOptions{
		Home:       c.home,
		PluginsDir: c.pluginsDir,
		Plugins:    c.args,
		All:        f.all,
		Request:    f.req,
		Progress:   shown.step,
	})
	shown.clear()
	c.suggestPlugins(&report)
	c.suggestPrereleases("upgrade", &report, f.req)
	if err != nil {
		return err
	}
	if f.exitCode && report.Exit == host.ExitDone && pending(report) {
		report.Exit = host.ExitPending
	}
	if c.json {
		if err := c.printJSON(report); err != nil {
			return err
		}
		return exitWith(report.Exit)
	}
	printRoll(c, report, f.req)
	printStays(c, report, f.req)
	return exitWith(report.Exit)
}

func pending(r host.RollReport) bool {
	for _, p := range r.Plugins {
		if p.Report.Result == host.ResultPlanned {
			return true
		}
	}
	return false
}

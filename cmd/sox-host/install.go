package main

import (
	"context"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/sox-host/sox-host/host"
)

func installCommand() *command {
	var o host.InstallOptions
	var start bool
	return &command{
		name:    "install",
		args:    "FILE...",
		minArgs: 1,
		maxArgs: -1,
		short:   "Copy a program or a manifest into the plugins folder under its right name",
		help: `The copy is made aside, checked, and renamed into place: no running host can ever see
half of it. Name and version come from the file name, NAME_vX.Y.Z, unless flags say
otherwise; the file is not run to find out: a program that says another version is refused
at its first start, which --start does at once. A file FILE.sha256 beside it must agree.
With --start, a new file that does not start is taken out again.

Examples:
  sox-host install ./notes --version 1.3.0
  sox-host install dist/notes_v1.3.0_linux_amd64 --start
  sox-host install server.json --name weather --version 1.0.0
`,
		exits: rollExits,
		means: map[host.Exit]string{host.ExitFailed: stillServes, host.ExitPartial: "some of several files, or of several hosts with --start, failed"},
		flags: func(fs *pflag.FlagSet) {
			fs.StringVar(&o.Name, "name", "", "`name` of the plugin (default: from the file name)")
			fs.StringVar(&o.Version, "version", "", "`version`, X.Y.Z (default: from the file name)")
			fs.BoolVar(&o.Replace, "replace", false, "overwrite the same version with other bytes")
			fs.BoolVar(&start, "start", false, "upgrade to it at once, as sox-host upgrade --to does")
		},
		run: func(ctx context.Context, c *call) error {
			if len(c.args) > 1 && (o.Name != "" || o.Version != "") {
				return usagef("--name and --version are for one file, not for %d", len(c.args))
			}
			return runInstall(ctx, c, o, start)
		},
	}
}

// installResult is one file in the result.
type installResult struct {
	File string `json:"file"`
	host.Installed
	Exit  host.Exit        `json:"exit"`
	Error string           `json:"error,omitempty"`
	Start *host.RollReport `json:"start,omitempty"`
	// Removed says that the file was taken out again, because it could not be started.
	Removed bool `json:"removed,omitempty"`
}

func runInstall(ctx context.Context, c *call, o host.InstallOptions, start bool) error {
	if err := c.folders(); err != nil {
		return err
	}
	o.Home, o.PluginsDir = c.home, c.pluginsDir
	results := make([]installResult, 0, len(c.args))
	exit, failures := host.ExitDone, 0
	for _, file := range c.args {
		o.File = file
		r := installResult{File: file}
		var err error
		if r.Installed, err = host.Install(ctx, o); err != nil {
			if len(c.args) == 1 {
				return err
			}
			r.Exit, r.Error = host.ExitCode(err), err.Error()
		} else if start {
			if err := r.start(ctx, c); err != nil {
				return err
			}
			r.takeOut(ctx, c)
		}
		if r.Exit != host.ExitDone {
			exit = r.Exit
			failures++
		}
		results = append(results, r)
		if !c.json {
			r.print(c, start)
		}
	}
	if failures > 0 && len(results) > 1 {
		exit = host.ExitPartial
	}
	if c.json {
		if err := c.printJSON(map[string]any{"exit": exit, "files": results}); err != nil {
			return err
		}
	}
	return exitWith(exit)
}

func (r *installResult) start(ctx context.Context, c *call) error {
	shown := newProgress(c.stderr)
	report, err := host.Roll(ctx, host.RollOptions{
		Home:       c.home,
		PluginsDir: c.pluginsDir,
		Plugins:    []string{r.Plugin},
		Request:    host.UpgradeRequest{To: r.Version.String()},
		Progress:   shown.step,
	})
	shown.clear()
	r.Start, r.Exit = &report, report.Exit
	return err
}

// takeOut removes a file that was not there before and could not be started. What is refused could still be insisted
// on, and a host that was not waited for may still go on: then it stays.
func (r *installResult) takeOut(ctx context.Context, c *call) {
	switch r.Exit {
	case host.ExitFailed, host.ExitVerify, host.ExitNotFound:
	default:
		return
	}
	if r.Result != host.ResultInstalled {
		return
	}
	_, err := host.Remove(ctx, host.RemoveOptions{Home: c.home, PluginsDir: c.pluginsDir, Plugin: r.Plugin, Version: r.Version.String()})
	r.Removed = err == nil
}

func (r *installResult) print(c *call, start bool) {
	if r.Error != "" {
		c.printf("%s\n", oneLine(r.Error))
		return
	}
	next := ""
	if !start {
		next = "   next: sox-host upgrade " + r.Plugin + c.sameFolders()
	}
	if !start && r.Result != string(host.ResultUnchanged) && filepath.Ext(r.Path) != ".json" { // a manifest's is only in its name
		next += ", which checks that the program says this version"
	}
	c.printf("%s  %s %s   %s%s\n", r.Plugin, r.Result, r.Version, oneLine(base(r.Path)), next)
	if r.Start != nil {
		printRoll(c, *r.Start, host.UpgradeRequest{})
	}
	switch {
	case r.Removed:
		c.printf("%s  %s was taken out again\n", r.Plugin, oneLine(base(r.Path)))
	case start && r.Exit != host.ExitDone && r.Result == host.ResultInstalled:
		c.printf("%s  %s stays   to remove it: sox-host remove %s --version %s%s\n", r.Plugin, oneLine(base(r.Path)), r.Plugin, r.Version, c.sameFolders())
	}
}

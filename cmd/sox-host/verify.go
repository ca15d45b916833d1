package main

import (
	"context"
	"path/filepath"

	"github.com/sox-host/sox-host/host"
)

func verifyCommand() *command {
	return &command{
		name:    "verify",
		args:    "[NAME...]",
		maxArgs: -1,
		short:   "Read every build again and compare its digest",
		help: `Hashes the files of the plugins folder and compares them with their *.sha256 files,
and hashes the staged builds that are active, previous or pinned. For a server behind
a url it says whether sox-remote is there. Nothing is changed. Files that cannot run
anyway are left to sox-host list.

Examples:
  sox-host verify
  sox-host verify notes --json
`,
		exits: []host.Exit{host.ExitDone, host.ExitFailed, host.ExitUsage, host.ExitNotFound, host.ExitVerify, host.ExitRefused},
		run:   runVerify,
	}
}

func runVerify(ctx context.Context, c *call) error {
	if err := c.folders(); err != nil {
		return err
	}
	report, err := host.Verify(ctx, c.home, c.pluginsDir, c.args...)
	if err != nil {
		return err
	}
	if c.json {
		if err := c.printJSON(report); err != nil {
			return err
		}
		return exitWith(report.Exit)
	}
	t := newTable(c.stdout)
	for _, check := range report.Checks {
		word, detail := "ok", short(check.SHA256)

		if !check.OK {
			word, detail = "FAILED", check.Error
		}
		t.row(check.Plugin, check.Version, check.What, word, base(check.Path), detail) // what is long comes last
	}
	t.print()
	if len(report.Checks) == 0 {
		c.printf("nothing to verify in %s\n", oneLine(c.pluginsDir))
	}
	return exitWith(report.Exit)
}

// base is filepath.Base that leaves nothing as nothing.
func base(path string) string {
	if path == "" {
		return ""
	}
	return filepath.Base(path)
}

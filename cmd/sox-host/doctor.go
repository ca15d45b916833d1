package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sox-host/sox-host/host"
)

func doctorCommand() *command {
	var fix bool
	return &command{
		name:  "doctor",
		short: "Find out what is wrong, and say how to mend it",
		help: `Looks at the folders (owner, mode, links, space), sockets and processes that dead hosts
left, damaged states, settings, every plugin file, and whether running hosts are of this
version. Nothing is changed without --fix. With it, write permission of others is taken
from your folders, leftover sockets go, and damaged states are recovered; processes are
never signalled, and plugin files never touched.

Examples:
  sox-host doctor
  sox-host doctor --fix
  sox-host doctor --json | jq '.findings[] | select(.level == "problem")'
`,
		exits: []host.Exit{host.ExitDone, host.ExitFailed, host.ExitUsage},
		means: map[host.Exit]string{host.ExitDone: "no problem is left; there may be warnings", host.ExitFailed: "a problem is left"},
		flags: func(fs *pflag.FlagSet) {
			fs.BoolVar(&fix, "fix", false, "mend what can be mended without asking")
		},
		run: func(ctx context.Context, c *call) error {
			if err := c.folders(); err != nil {
				return err
			}
			report := host.Doctor(ctx, host.DoctorOptions{Home: c.home, PluginsDir: c.pluginsDir, Version: readVersion().Version, Fix: fix})
			if c.json {
				if err := c.printJSON(report); err != nil {
					return err
				}
				return exitWith(report.Exit)
			}
			printDoctor(c, report)
			return exitWith(report.Exit)
		},
	}
}

func printDoctor(c *call, report host.DoctorReport) {
	counts := make(map[host.Level]int)
	for _, f := range report.Findings {
		counts[f.Level]++
		c.printf("%-8s %-8s %s   %s\n", f.Level, f.Check, oneLine(f.Subject), oneLine(f.Text))
		if f.Fix != "" {
			c.printf("%-17s -> %s\n", "", oneLine(f.Fix))
		}
	}
	c.printf("\n%s\n", doctorSum(counts))
}

// doctorSum counts what a person has to look at, and what --fix has mended.
func doctorSum(counts map[host.Level]int) string {
	parts := []string{"no problems"}
	if n := counts[host.LevelProblem]; n > 0 {
		parts[0] = count(n, "problem")
	}
	if n := counts[host.LevelWarning]; n > 0 {
		parts = append(parts, count(n, "warning"))
	}
	if n := counts[host.LevelFixed]; n > 0 {
		parts = append(parts, fmt.Sprintf("%d fixed", n))
	}
	return strings.Join(parts, ", ")
}

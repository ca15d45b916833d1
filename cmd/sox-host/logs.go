package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/sox-host/sox-host/host"
)

func logsCommand() *command {
	o := host.LogOptions{}
	return &command{
		name:      "logs",
		args:      "NAME",
		minArgs:   1,
		maxArgs:   1,
		short:     "Show what a plugin printed",
		jsonUsage: "print each line as one JSON object",
		help: `Everything a plugin writes to its stdout and stderr goes into a log in the home, with
time, version and generation. The log is shared by all hosts and starts over at 4 MiB;
the part before is kept once. Why the last start failed, if it did, is said on stderr.

Examples:
  sox-host logs notes
  sox-host logs notes -f
  sox-host logs notes -n 1000 --json | jq -r 'select(.stream == "stderr").text'
`,
		exits: []host.Exit{host.ExitDone, host.ExitFailed, host.ExitUsage, host.ExitNotFound, host.ExitRefused},
		flags: func(fs *pflag.FlagSet) {
			fs.BoolVarP(&o.Follow, "follow", "f", false, "go on with new lines until interrupted")
			fs.IntVarP(&o.Lines, "lines", "n", 100, "how `many` of the last lines; -1 for all")
		},
		run: func(ctx context.Context, c *call) error {
			if err := c.folders(); err != nil {
				return err
			}
			o.Home, o.PluginsDir, o.Plugin = c.home, c.pluginsDir, c.args[0]
			// Following, it comes first: nobody waits for the end.
			if o.Follow {
				c.printFailure(o.Plugin)
			}
			lines := json.NewEncoder(c.stdout)
			lines.SetEscapeHTML(false)
			printed := false
			err := host.Log(ctx, o, func(line string) error {
				printed = true
				if c.json {
					return lines.Encode(host.ParseLogLine(line))
				}
				_, err := c.stdout.Write([]byte(oneLine(line) + "\n"))
				return err
			})
			if err != nil {
				return err
			}
			if !printed {
				fmt.Fprintf(c.stderr, "%s has printed nothing yet\n", o.Plugin)
			}
			if !o.Follow {
				c.printFailure(o.Plugin)
			}
			return nil
		},
	}
}

// printFailure says on stderr why the last start of a plugin failed. What it printed need not tell: a wrong version, or
// a setting that was refused, is found by the host.
func (c *call) printFailure(plugin string) {
	if failure := host.LastFailure(c.home, c.pluginsDir, plugin); failure != "" {
		fmt.Fprintf(c.stderr, "%s: %s\n", plugin, oneLine(failure))
	}
}

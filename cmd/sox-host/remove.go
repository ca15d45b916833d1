package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/sox-host/sox-host/host"
)

func removeCommand() *command {
	var o host.RemoveOptions
	return &command{
		name:    "remove",
		args:    "NAME",
		minArgs: 1,
		maxArgs: 1,
		short:   "Delete a plugin's files, of one version or all",
		help: `Without --version the whole plugin goes: its files, its settings, its log and what is
remembered about it. Hosts that run it go on until its process or their client ends. The
version that is active, or pinned, is not removed alone.

Examples:
  sox-host remove notes --version 1.2.0
  sox-host remove notes
  sox-host remove notes --keep-data
`,
		exits: []host.Exit{host.ExitDone, host.ExitFailed, host.ExitUsage, host.ExitNotFound, host.ExitRefused, host.ExitBusy},
		meant: func(args []string) string {
			if len(args) != 2 || !isVersion(args[1]) {
				return ""
			}
			return fmt.Sprintf(": that version alone goes by sox-host remove %s --version %s", shellQuote(args[0]), args[1])
		},
		flags: func(fs *pflag.FlagSet) {
			fs.StringVar(&o.Version, "version", "", "remove only this `version`")
			fs.BoolVar(&o.KeepData, "keep-data", false, "keep settings, log, pin and the remembered build")
		},
		run: func(ctx context.Context, c *call) error {
			if err := c.folders(); err != nil {
				return err
			}
			o.Home, o.PluginsDir, o.Plugin = c.home, c.pluginsDir, c.args[0]
			done, err := host.Remove(ctx, o)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(done)
			}
			for _, path := range done.Paths {
				c.printf("removed %s\n", oneLine(path))
			}
			for _, pid := range done.Serving {
				c.printf("host %d serves it until its process or its client ends\n", pid)
			}
			switch {
			case done.Version == "":
				c.printf("%s  removed\n", done.Plugin)
			case done.Active == "":
				c.printf("%s  removed %s\n", done.Plugin, done.Version)
			default:
				c.printf("%s  removed %s   %s stays active\n", done.Plugin, done.Version, done.Active)
			}
			return nil
		},
	}
}

package main

import (
	"context"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sox-host/sox-host/host"
)

func pinCommand() *command {
	var digest string
	return &command{
		name:    "pin",
		args:    "NAME [VERSION]",
		minArgs: 1,
		maxArgs: 2,
		short:   "Keep a plugin at one version, or at exactly one build",
		help: `Without a version the active one is pinned. Upgrades to anything else are refused
until sox-host unpin NAME. What runs now stays: if the pinned version is not the
active one, sox-host upgrade NAME goes there. With --sha256 only those bytes are
accepted.

Examples:
  sox-host pin notes
  sox-host pin notes 1.2.0
  sox-host pin notes 1.2.0 --sha256 "$(sha256sum notes_v1.2.0 | cut -d' ' -f1)"
`,
		exits: []host.Exit{host.ExitDone, host.ExitFailed, host.ExitUsage, host.ExitNotFound, host.ExitRefused, host.ExitBusy},
		meant: func(args []string) string {
			for _, arg := range args {
				if flag, _, _ := strings.Cut(arg, "="); flag == "--to" || flag == "--version" {
					return ": the version follows the name, as in sox-host pin notes 1.2.0"
				}
			}
			return ""
		},
		flags: func(fs *pflag.FlagSet) {
			fs.StringVar(&digest, "sha256", "", "accept only the build with this `digest`, 64 hexadecimal digits")
		},
		run: func(ctx context.Context, c *call) error {
			if err := c.folders(); err != nil {
				return err
			}
			version := ""
			if len(c.args) == 2 {
				version = c.args[1]
			}
			pin, err := host.PinPlugin(ctx, c.home, c.pluginsDir, c.args[0], version, digest)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(pinResult{c.args[0], &pin})
			}
			c.printf("%s  pinned to %s   undo: sox-host unpin %s%s\n", c.args[0], build(host.BuildRef(pin)), c.args[0], c.sameFolders())
			return nil
		},
	}
}

// pinResult is the result of pin, and of unpin: the pin that was lifted, or null.
type pinResult struct {
	Plugin string    `json:"plugin"`
	Pin    *host.Pin `json:"pin"`
}

func unpinCommand() *command {
	return &command{
		name:    "unpin",
		args:    "NAME",
		minArgs: 1,
		maxArgs: 1,
		short:   "Let a pinned plugin be upgraded again",
		help: `Nothing is upgraded by this: run sox-host upgrade NAME when you want that.

Example:
  sox-host unpin notes
`,
		exits: []host.Exit{host.ExitDone, host.ExitFailed, host.ExitUsage, host.ExitNotFound, host.ExitRefused, host.ExitBusy},
		run: func(ctx context.Context, c *call) error {
			if err := c.folders(); err != nil {
				return err
			}
			pin, err := host.UnpinPlugin(ctx, c.home, c.pluginsDir, c.args[0])
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(pinResult{c.args[0], pin})
			}
			if pin == nil {
				c.printf("%s  was not pinned\n", c.args[0])
				return nil
			}
			c.printf("%s  no longer pinned to %s\n", c.args[0], pin.Version)
			return nil
		},
	}
}

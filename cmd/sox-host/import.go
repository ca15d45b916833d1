package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sox-host/sox-host/host"
)

func importCommand() *command {
	var o host.ImportOptions
	var client string
	return &command{
		name:    "import",
		args:    "FILE...",
		minArgs: 1,
		maxArgs: -1,
		short:   "Make plugins of the MCP servers in a client's configuration",
		help: `Reads the files of Claude Code (.mcp.json, ~/.claude.json), Claude Desktop
(claude_desktop_config.json), Cursor (.cursor/mcp.json) and VS Code (.vscode/mcp.json),
and writes a manifest for each server that is a command. Values of variables go into
NAME.json, readable by you alone; variables that the client fills in are passed on. The
client's file is not changed: what is to replace its servers is printed.

Examples:
  sox-host import ~/.claude.json --dry-run
  sox-host import .vscode/mcp.json .mcp.json
`,
		exits: []host.Exit{host.ExitDone, host.ExitFailed, host.ExitUsage, host.ExitNotFound, host.ExitRefused, host.ExitPartial, host.ExitBusy},
		flags: func(fs *pflag.FlagSet) {
			fs.BoolVar(&o.DryRun, "dry-run", false, "show everything and write nothing")
			fs.BoolVar(&o.Replace, "replace", false, "overwrite files of an earlier import")
			fs.StringVar(&client, "client", "", "whose file it is: `claude-code`, claude-desktop, cursor or vscode (default: by its name)")
		},
		run: func(ctx context.Context, c *call) error {
			if o.Client = host.ImportClient(client); client != "" && !slices.Contains(host.ImportClients, o.Client) {
				return usagef("--client %q: want claude-code, claude-desktop, cursor or vscode", client)
			}
			err := c.folders()
			if err != nil {
				return err
			}
			o.Home, o.PluginsDir, o.Files = c.home, c.pluginsDir, c.args
			if o.Serve, err = serveLine(c); err != nil {
				return err
			}
			report, err := host.Import(ctx, o)
			if err != nil {
				return err
			}
			if c.json {
				if err := c.printJSON(report); err != nil {
					return err
				}
				return exitWith(report.Exit)
			}
			for _, f := range report.Files {
				printImport(c, f, o.DryRun)
			}
			return exitWith(report.Exit)
		},
	}
}

// serveLine is how a client starts a host on the same folders: by the full path, since the PATH of a desktop program is
// not that of a shell.
func serveLine(c *call) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	line := []string{self, "serve"}
	for name, dir := range map[string]string{"home": c.home, "plugins-dir": c.pluginsDir} {
		if f := c.flags.Lookup(name); f != nil && f.Changed {
			line = append(line, "--"+name+"="+dir)
		}
	}
	slices.Sort(line[2:])
	return line, nil
}

func printImport(c *call, f host.ImportedFile, dryRun bool) {
	if f.Error != "" {
		fmt.Fprintf(c.stderr, "sox-host import: %s: %s\n", oneLine(f.Path), oneLine(f.Error))
		return
	}
	c.printf("%s  (%s)\n", oneLine(f.Path), f.Client)
	for _, e := range f.Entries {
		printEntry(c, e, dryRun)
	}
	if f.Config == nil {
		return
	}
	done := "has been"
	if dryRun {
		done = "would be"
	}
	c.printf("\nWhat %s imported can be replaced in the client's file by this:\n\n%s\n", done, printable(string(f.Config)))
}

func printEntry(c *call, e host.ImportEntry, dryRun bool) {
	name := e.Server
	if e.Scope != "" {
		name = fmt.Sprintf("%s (of %s)", e.Server, e.Scope)
	}
	if e.Reason != "" {
		c.printf("  %s  %s: %s\n", oneLine(name), e.Result, oneLine(e.Reason))
		return
	}
	c.printf("  %s  %s as %s %s\n", oneLine(name), e.Result, e.Plugin, e.Version)
	for _, path := range e.Files {
		c.printf("    %s\n", oneLine(path))
	}
	if dryRun {
		for line := range strings.Lines(string(e.Manifest)) {
			c.printf("      %s\n", oneLine(strings.TrimSuffix(line, "\n")))
		}
	}
	if len(e.Secrets) > 0 {
		c.printf("    in %s.json, for you alone: %s\n", e.Plugin, oneLine(strings.Join(e.Secrets, ", ")))
	}
	if len(e.Passed) > 0 {
		c.printf("    passed on from the client: %s\n", oneLine(strings.Join(e.Passed, ", ")))
	}
	for _, hint := range e.Hints {
		c.printf("    hint: %s\n", oneLine(hint))
	}
}

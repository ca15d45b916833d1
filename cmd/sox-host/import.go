package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
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
and writes a manifest for each server that is a command or a url. Values of variables
and of headers go into NAME.json, readable by you alone; those that the client fills in
are passed on. The client's file is not changed: what to put there in place of its
servers is printed. A server behind a url runs by the program sox-remote.

Examples:
  sox-host import ~/.claude.json --dry-run
  sox-host import .vscode/mcp.json .mcp.json
`,
		meant: func(args []string) string {
			if len(args) > 0 {
				return ""
			}
			return ": the usual places are .mcp.json, ~/.claude.json, ~/.cursor/mcp.json, .cursor/mcp.json, .vscode/mcp.json" +
				" and claude_desktop_config.json in the folder of Claude Desktop"
		},
		exits: []host.Exit{host.ExitDone, host.ExitFailed, host.ExitUsage, host.ExitNotFound, host.ExitRefused, host.ExitPartial, host.ExitBusy},
		means: map[host.Exit]string{host.ExitPartial: "some of several servers or files could not be imported"},
		flags: func(fs *pflag.FlagSet) {
			fs.BoolVar(&o.DryRun, "dry-run", false, "show everything and write nothing")
			fs.BoolVar(&o.Replace, "replace", false, "overwrite files of an earlier import")
			fs.StringVar(&client, "client", "", "the `client` whose file it is: claude-code, claude-desktop, cursor or vscode (default: told by the file's name and folder)")
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
// not that of a shell, and neither are its variables.
func serveLine(c *call) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	line := []string{self, "serve"}
	for _, folder := range []struct{ flag, variable, dir string }{{"home", "SOX_HOME", c.home}, {"plugins-dir", "SOX_PLUGINS_DIR", c.pluginsDir}} {
		if f := c.flags.Lookup(folder.flag); f != nil && f.Changed || os.Getenv(folder.variable) != "" {
			line = append(line, "--"+folder.flag+"="+folder.dir)
		}
	}
	return line, nil
}

func printImport(c *call, f host.ImportedFile, dryRun bool) {
	if f.Error != "" {
		fmt.Fprintf(c.stderr, "sox-host import: %s: %s\n", oneLine(f.Path), oneLine(f.Error))
		return
	}
	c.printf("%s  (%s)\n", oneLine(f.Path), f.Client)
	if f.Guessed {
		c.printf("  taken for a file of %s: if it is another client's, say which by --client\n", f.Client)
	}
	for _, e := range f.Entries {
		printEntry(c, e, dryRun)
	}
	if f.Config == nil {
		return
	}
	when := "To use this"
	if dryRun {
		when = "Once it is imported"
	}
	c.printf("\n%s, put the following in place of %s in %s:\n\n%s\n", when, replaced(f), oneLine(f.Path), printable(string(f.Config)))
	if !dryRun && slices.ContainsFunc(f.Entries, func(e host.ImportEntry) bool { return len(e.Secrets) > 0 }) {
		c.printf("\nUntil then %s still has the secrets that are now in NAME.json, too.\n", oneLine(f.Path))
	}
}

// replaced names the members of a client's file that the printed ones stand for.
func replaced(f host.ImportedFile) string {
	var members map[string]json.RawMessage
	if json.Unmarshal(f.Config, &members) != nil {
		return "its servers"
	}
	var quoted []string
	for _, name := range slices.Sorted(maps.Keys(members)) {
		quoted = append(quoted, strconv.Quote(name))
	}
	return strings.Join(quoted, " and ")
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
	if len(e.Plain) > 0 {
		c.printf("    in %s.json: %s\n", e.Plugin, oneLine(strings.Join(e.Plain, ", ")))
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

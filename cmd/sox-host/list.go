package main

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sox-host/sox-host/host"
)

func listCommand() *command {
	return &command{
		name:  "list",
		short: "List the plugins folder: names, versions, and what is wrong with files",
		help: `Looks at the plugins folder and says of every file what it is. A file that can run
has the verdict ready; any other verdict comes with its reason. A file NAME_vX.Y.Z_OS_ARCH
for this system goes before NAME_vX.Y.Z, which is for any. Nothing is started or
changed, and no host needs to run.

Examples:
  sox-host list
  sox-host list --json | jq '.plugins[].active.version'
`,
		exits: []host.Exit{host.ExitDone, host.ExitFailed, host.ExitUsage, host.ExitNotFound, host.ExitRefused},
		run:   runList,
	}
}

func runList(_ context.Context, c *call) error {
	if err := c.folders(); err != nil {
		return err
	}
	inventory, err := host.List(c.home, c.pluginsDir)
	if err != nil {
		return err
	}
	if c.json {
		return c.printJSON(inventory)
	}
	if len(inventory.Plugins) == 0 {
		hint := ""
		if inventory.Missing {
			hint = "; it is made at the first start, or now by: mkdir -p -m 700 " + shellQuote(c.pluginsDir)
		}
		c.printf("no plugins in %s: put files named NAME_vX.Y.Z there%s\n", oneLine(c.pluginsDir), oneLine(hint))
	} else {
		t := newTable(c.stdout)
		t.row("PLUGIN", "VERSION", "VERDICT", "STATE", "FILE", "REASON")
		for _, p := range inventory.Plugins {
			name := p.Plugin
			for _, f := range p.Files {
				t.row(name, f.Version.String(), string(f.Verdict), fileState(p, f), fileText(f), f.Reason)
				name = ""
			}
		}
		t.print()
	}
	for _, p := range inventory.Plugins {
		for _, problem := range p.Problems {
			c.printf("%s: %s\n", p.Plugin, oneLine(problem))
		}
	}
	if len(inventory.Others) > 0 {
		c.printf("\nnot plugins:\n")
		t := newTable(c.stdout)
		for _, f := range inventory.Others {
			t.row("  "+filepath.Base(f.Path), string(f.Verdict), f.Reason)
		}
		t.print()
	}
	return nil
}

// fileText names a file, and the server that it leads to if that is behind a url.
func fileText(f host.PluginFile) string {
	if f.URL == "" {
		return filepath.Base(f.Path)
	}
	return filepath.Base(f.Path) + " -> " + f.URL
}

// fileState says what the state knows of a file's version.
func fileState(p host.PluginInfo, f host.PluginFile) string {
	if f.Version.IsZero() || slices.Contains(p.Shadowed, f.Path) {
		return ""
	}
	var words []string
	if f.Version == p.Active.Version {
		words = append(words, "active")
	}
	if f.Version == p.Previous.Version {
		words = append(words, "previous")
	}
	if p.Pin != nil && f.Version == p.Pin.Version {
		words = append(words, "pinned")
	}
	if p.Available != "" && f.Version.String() == p.Available && !p.Active.IsZero() {
		words = append(words, "available")
	}
	if p.Held != "" && f.Version.String() == p.Held {
		words = append(words, "held by the pin")
	}
	return strings.Join(words, ",")
}

package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/sox-host/sox-host/host"
)

func infoCommand() *command {
	return &command{
		name:    "info",
		args:    "NAME",
		minArgs: 1,
		maxArgs: 1,
		short:   "Show everything about one plugin: files, builds, pin, history, hosts",
		help: `Lists the files of a plugin with their verdicts, the builds that are active, previous and
pinned, what an upgrade would choose, what was done to it, and the hosts that run it.

Examples:
  sox-host info notes
  sox-host info notes --json | jq '.plugin.history'
`,
		exits: []host.Exit{host.ExitDone, host.ExitFailed, host.ExitUsage, host.ExitNotFound, host.ExitRefused},
		run:   runInfo,
	}
}

type infoResult struct {
	Plugin host.PluginInfo `json:"plugin"`
	Hosts  []hostStatus    `json:"hosts"`
}

func runInfo(ctx context.Context, c *call) error {
	if err := c.folders(); err != nil {
		return err
	}
	inventory, err := host.List(c.home, c.pluginsDir)
	if err != nil {
		return err
	}
	name := c.args[0]
	i := slices.IndexFunc(inventory.Plugins, func(p host.PluginInfo) bool { return p.Plugin == name })
	if i < 0 {
		return fmt.Errorf("plugin %q: %w in %s", name, host.ErrUnknownPlugin, c.pluginsDir)
	}
	result := infoResult{Plugin: inventory.Plugins[i], Hosts: []hostStatus{}}
	status, err := askHosts(ctx, c)
	if err != nil {
		return err
	}
	if status.only(name) {
		result.Hosts = status.Hosts
	}
	if c.json {
		return c.printJSON(result)
	}
	printInfo(c, result)
	return nil
}

func printInfo(c *call, r infoResult) {
	p := r.Plugin
	c.printf("%s\n", p.Plugin)
	t := newTable(c.stdout)
	t.row("  active", build(p.Active))
	t.row("  previous", build(p.Previous))
	pin := "-"
	if p.Pin != nil {
		pin = build(host.BuildRef(*p.Pin))
	}
	t.row("  pinned", pin)
	if p.Available != "" {
		t.row("  available", p.Available)
	}
	if p.Held != "" {
		t.row("  held by the pin", p.Held)
	}
	for _, f := range p.Files {
		t.row("  file", fileText(f), string(f.Verdict), f.Reason)
	}
	for _, h := range r.Hosts {
		if h.Status == nil {
			t.row("  host", fmt.Sprintf("%d", h.PID), h.Error)
			continue
		}
		for _, s := range h.Status.Plugins {
			t.row("  host", fmt.Sprintf("%d", h.PID), s.State, s.Version, fmt.Sprintf("generation %s", number(s.Generation)))
		}
	}
	t.print()
	for _, problem := range p.Problems {
		c.printf("  problem  %s\n", oneLine(problem))
	}
	if len(p.History) == 0 {
		return
	}
	c.printf("history, newest first:\n")
	t = newTable(c.stdout)
	for _, e := range slices.Backward(p.History) {
		t.row("  "+e.Time.Local().Format("2006-01-02 15:04:05"), e.Action, e.From.Version.String(), e.To.Version.String(), e.Note)
	}
	t.print()
}

func build(r host.BuildRef) string {
	switch {
	case r.IsZero():
		return "-"
	case r.SHA256 == "":
		return r.Version.String()
	}
	return fmt.Sprintf("%s  sha256 %s", r.Version, short(r.SHA256))
}

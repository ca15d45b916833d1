package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sox-host/sox-host/host"
)

func statusCommand() *command {
	return &command{
		name:    "status",
		args:    "[NAME]",
		maxArgs: 1,
		short:   "Show what the running hosts do",
		help: `Asks every host that runs on the plugins folder, the oldest first. A host that does
not answer within some seconds is shown as such. Without a running host the exit
code is 6; sox-host list shows what the next one will find.

What NOTE says of a plugin, besides versions and pins:
  on probation       it was upgraded less than half a minute ago: a crash now goes back by itself
  breaker open       it failed three times in a minute and is left alone for a while; a change in
                     the plugins folder, or sox-host restart NAME, starts it at once
  breaker half-open  that time is over, and the next start decides
  opens no session   its process runs and takes no client, as that of a server that is out of reach;
                     the reason is below the table, and in sox-host logs NAME
  attached to PATH   somebody else runs its process, see serve --attach

Examples:
  sox-host status
  sox-host status notes
  sox-host status --json | jq '.hosts[].status.plugins[] | {plugin, state, version}'
`,
		exits: []host.Exit{host.ExitDone, host.ExitFailed, host.ExitUsage, host.ExitNotFound, host.ExitRefused, host.ExitNoHost, host.ExitPartial},
		means: map[host.Exit]string{host.ExitNotFound: "no running host has the plugin", host.ExitPartial: "a host did not answer"},
		run:   runStatus,
	}
}

// hostStatus is one host in the result.
type hostStatus struct {
	PID    int          `json:"pid"`
	Since  time.Time    `json:"since"`
	Error  string       `json:"error,omitempty"`
	Status *host.Status `json:"status,omitempty"`
}

type statusResult struct {
	Exit  host.Exit    `json:"exit"`
	Hosts []hostStatus `json:"hosts"`
}

var errNoHost = errors.New("no running host: a client starts one with sox-host serve; sox-host list shows what is on disk")

func runStatus(ctx context.Context, c *call) error {
	if err := c.folders(); err != nil {
		return err
	}
	result, err := askHosts(ctx, c)
	if err != nil {
		return err
	}
	if len(result.Hosts) == 0 {
		return &exitError{host.ExitNoHost, errNoHost}
	}
	if len(c.args) == 1 {
		known := result.plugins()
		if !result.only(c.args[0]) {
			return &exitError{host.ExitNotFound, fmt.Errorf("no running host has a plugin %q%s", c.args[0], c.suggestRunning(c.args[0], known))}
		}
	}
	if c.json {
		if err := c.printJSON(result); err != nil {
			return err
		}
		return exitWith(result.Exit)
	}
	for i, h := range result.Hosts {
		if i > 0 {
			c.printf("\n")
		}
		printHost(c, h)
	}
	return exitWith(result.Exit)
}

// askHosts asks all hosts at once.
func askHosts(ctx context.Context, c *call) (statusResult, error) {
	result := statusResult{Hosts: []hostStatus{}}
	remotes, err := host.Remotes(ctx, c.home, c.pluginsDir)
	if err != nil {
		return result, err
	}
	result.Hosts = make([]hostStatus, len(remotes))
	var asking sync.WaitGroup
	for i, r := range remotes {
		// Ended by the time limit of Status.
		asking.Go(func() {
			h := hostStatus{PID: r.PID, Since: r.Since}
			if status, err := r.Status(ctx); err != nil {
				h.Error = err.Error()
			} else {
				h.Status = &status
			}
			result.Hosts[i] = h
		})
	}
	asking.Wait()
	if slices.ContainsFunc(result.Hosts, func(h hostStatus) bool { return h.Error != "" }) {
		result.Exit = host.ExitPartial
	}
	return result, context.Cause(ctx)
}

// plugins are the names of all plugins that the hosts have.
func (r *statusResult) plugins() []string {
	set := make(map[string]bool)
	for _, h := range r.Hosts {
		if h.Status != nil {
			for _, p := range h.Status.Plugins {
				set[p.Plugin] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// only reduces the result to one plugin. It reports false if no host has it.
func (r *statusResult) only(name string) (found bool) {
	for _, h := range r.Hosts {
		if h.Status == nil {
			continue
		}
		h.Status.Plugins = slices.DeleteFunc(h.Status.Plugins, func(p host.PluginStatus) bool { return p.Plugin != name })
		found = found || len(h.Status.Plugins) > 0
	}
	return found
}

func printHost(c *call, h hostStatus) {
	if h.Status == nil {
		c.printf("host %d  up %s  %s\n", h.PID, age(time.Since(h.Since)), oneLine(h.Error))
		return
	}
	s := h.Status
	line := fmt.Sprintf("host %d  up %s", s.PID, age(time.Since(s.Since)))
	for _, part := range []struct{ label, value string }{{"sox-host", s.Version}, {"client", s.Client}, {"protocol", s.Protocol}} {
		if part.value != "" {
			line += "  " + part.label + " " + oneLine(part.value)
		}
	}
	c.printf("%s\n", line)
	if len(s.Plugins) == 0 {
		c.printf("  no plugins\n")
	}
	t := newTable(c.stdout)
	if len(s.Plugins) > 0 {
		t.row("  PLUGIN", "VERSION", "STATE", "GENERATION", "PID", "IN FLIGHT", "QUEUED", "TOOLS", "NOTE")
	}
	for _, p := range s.Plugins {
		t.row("  "+p.Plugin, p.Version, p.State, number(p.Generation), number(uint64(max(p.PID, 0))), strconv.Itoa(p.InFlight), strconv.Itoa(p.Queued), strconv.Itoa(p.Tools), strings.Join(notes(p), ", "))
		for _, d := range p.Draining {
			t.row("", d.Version, "draining", number(d.Generation), number(uint64(max(d.PID, 0))), strconv.Itoa(d.InFlight))
		}
	}
	t.print()
	for _, p := range s.Plugins {
		for _, problem := range p.Problems {
			c.printf("  %s: %s\n", p.Plugin, oneLine(problem))
		}
		if p.LastExit != "" {
			c.printf("  %s: last exit: %s\n", p.Plugin, oneLine(p.LastExit))
		}
		if p.LastRollback != "" {
			c.printf("  %s: rolled back: %s\n", p.Plugin, oneLine(p.LastRollback))
		}
	}
	for _, problem := range s.Problems {
		c.printf("  %s\n", oneLine(problem))
	}
}

func number(n uint64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatUint(n, 10)
}

// notes is what a person wants to know besides the numbers.
func notes(p host.PluginStatus) []string {
	var notes []string
	switch p.Lifetime {
	case "shared":
		note := "shared"
		if p.Joined != "" {
			note += " (" + p.Joined + ")"
		}
		notes = append(notes, note)
	case "attached":
		notes = append(notes, "attached to "+oneLine(p.Socket))
	}
	if p.Operation != "" {
		notes = append(notes, "upgrading: "+p.Operation)
	}
	if p.Probation {
		notes = append(notes, "on probation")
	}
	if p.Breaker != "" && p.Breaker != "closed" {
		notes = append(notes, "breaker "+p.Breaker)
	}
	if p.Refused { // the process runs, and nobody can use it
		notes = append(notes, "opens no session")
	}
	if p.Pinned != "" {
		notes = append(notes, "pinned to "+p.Pinned)
	}
	if p.Available != "" {
		notes = append(notes, p.Available+" available")
	}
	return notes
}

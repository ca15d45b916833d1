package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/sox-host/sox-host/host"
)

// printRoll shows what became of each plugin: from where to where, what it took, what it says about hosts, and one
// last line with the outcome and the way back.
func printRoll(c *call, report host.RollReport, req host.UpgradeRequest) {
	for _, name := range report.Skipped {
		c.printf("%s  skipped: the plugins folder has no file of it any more; a running host serves it until its client ends\n", oneLine(name))
	}
	if len(report.Plugins) == 0 && len(report.Skipped) == 0 {
		c.printf("no plugins in %s\n", oneLine(c.pluginsDir))
	}
	for _, p := range report.Plugins {
		printPlugin(c, p, req)
	}
	if len(report.Plugins) > 1 && report.Exit == host.ExitPartial {
		var failed []string
		for _, p := range report.Plugins {
			if p.Exit != host.ExitDone {
				failed = append(failed, p.Plugin)
			}
		}
		c.printf("%d of %d plugins not done: %s\n", len(failed), len(report.Plugins), strings.Join(failed, ", "))
	}
}

// printStays says of a first version that failed that its file is still there, and what to do when the fault is mended:
// in a program by another one in its place, in a manifest or in settings where they are.
func printStays(c *call, report host.RollReport, req host.UpgradeRequest) {
	for _, p := range report.Plugins {
		r := p.Report
		if r.Result != host.ResultFailed || r.From != "" || r.To == "" || req.Rollback || req.Restart {
			continue
		}
		if files := c.textFiles(p.Plugin, r.To); files != "" {
			c.printf("%s  once %s is corrected: sox-host upgrade %s%s\n", p.Plugin, oneLine(files), p.Plugin, c.sameFolders())
			continue
		}
		c.printf("%s  the file of %s is still there; a corrected one takes its place: sox-host install FILE --name %s --version %s --replace%s\n",
			p.Plugin, oneLine(r.To), p.Plugin, oneLine(r.To), c.sameFolders())
	}
}

// textFiles names what a person would edit for a version that failed: its manifest and its settings, or the settings if
// those are wrong. It is "" if what failed is a program.
func (c *call) textFiles(plugin, version string) (files string) {
	inventory, err := host.List(c.home, c.pluginsDir)
	if err != nil {
		return ""
	}
	settings := plugin + ".json"
	for _, p := range inventory.Plugins {
		for _, f := range p.Files {
			switch {
			case p.Plugin != plugin || filepath.Ext(f.Path) != ".json":
			case f.Verdict == host.VerdictBadSettings:
				return settings
			case f.Version.String() == version:
				files = filepath.Base(f.Path) + " or " + settings
			}
		}
	}
	return files
}

func printPlugin(c *call, p host.PluginRoll, req host.UpgradeRequest) {
	r := p.Report
	if header := movement(r); header != "" {
		c.printf("%s  %s\n", p.Plugin, header)
	}
	for _, parts := range [][]string{preparation(r), departure(p, req)} {
		if len(parts) > 0 {
			c.printf("  %s\n", strings.Join(parts, "   "))
		}
	}
	for _, change := range r.Changes {
		c.printf("  %s\n", oneLine(change))
	}
	for _, breaking := range r.Breaking {
		c.printf("  breaking: %s\n", oneLine(breaking))
	}
	printHosts(c, p.Hosts)
	c.printf("%s  %s\n", p.Plugin, strings.Join(outcome(c, p, req), "   "))
}

// movement is "1.2.0 -> 1.3.0" when there was one to be made.
func movement(r host.Report) string {
	if r.To == "" || r.Result == host.ResultUnchanged {
		return ""
	}
	from := r.From
	if from == "" {
		from = "(none)"
	}
	text := from + " -> " + r.To
	if r.From == r.To && r.ToSHA256 != "" && r.ToSHA256 != r.FromSHA256 {
		text += " (another build, " + short(r.ToSHA256) + ")"
	}
	return oneLine(text)
}

func preparation(r host.Report) []string {
	var parts []string
	if r.Result == host.ResultUnchanged {
		return nil
	}
	if r.StagedMS > 0 {
		parts = append(parts, "staged "+millis(r.StagedMS))
	}
	if r.StartedMS > 0 {
		parts = append(parts, "started "+millis(r.StartedMS))
	}
	if r.Schema != "" {
		parts = append(parts, "schema "+oneLine(r.Schema))
	}
	if hasCutOver(r) {
		parts = append(parts, fmt.Sprintf("cut over (generation %d) in %s", r.Generation, millis(r.CutoverMS)))
	}
	return parts
}

// What is said of a build that was tried and committed here, because no running host has the plugin.
const (
	noHost = "no running host has it: the next one started runs this"
	// notYet: a host that runs may have been started for other plugins, or not to watch, which it does not tell.
	notYet = "no running host has it yet: one that watches the folder takes it up within seconds, and the next one started runs it"
)

// hasCutOver says whether a client could have noticed: without a host there is none.
func hasCutOver(r host.Report) bool { return r.CutoverMS > 0 && !r.NoHost }

// departure is how the old generation went, if there was one.
func departure(p host.PluginRoll, req host.UpgradeRequest) []string {
	r := p.Report
	if !hasCutOver(r) || r.From == "" || notRunning(p) {
		return nil
	}
	drained := "no calls to drain"
	if r.Drained+r.Unknown > 0 {
		drained = "drained " + count(r.Drained, "call") + " in " + millis(r.DrainMS)
	}
	stopped := "stopped " + r.From
	switch {
	case r.Lifetime == "shared": // other hosts may use it
		stopped = "left the old process, which ends by itself"
	case req.Restart:
		stopped = "stopped the old process"
	case r.Warm:
		stopped = r.From + " stays warm through the probation"
	}
	return []string{drained, oneLine(stopped)}
}

// printHosts names the hosts whose fate the last line does not tell.
func printHosts(c *call, hosts []host.HostReport) {
	told := true
	for _, h := range hosts {
		told = told && (h.Outcome == host.OutcomeDone || h.Outcome == host.OutcomeUntouched || h.Canary && h.Outcome == host.OutcomeFailed)
	}
	if told {
		return
	}
	for _, h := range hosts {
		line := fmt.Sprintf("host %d", h.PID)
		if h.Canary {
			line += " (first)"
		}
		line += " " + string(h.Outcome)
		if h.Error != "" {
			line += ": " + h.Error
		}
		c.printf("  %s\n", oneLine(line))
	}
}

func outcome(c *call, p host.PluginRoll, req host.UpgradeRequest) []string {
	r := p.Report
	var parts []string
	undo := ""
	switch r.Result {
	case host.ResultUpgraded:
		parts, undo = append(parts, direction(r)+" to "+r.To), "sox-host rollback "+p.Plugin
	case host.ResultRolledBack:
		parts, undo = append(parts, "rolled back to "+r.To), "sox-host rollback "+p.Plugin
	case host.ResultRestarted:
		parts = append(parts, "restarted "+r.To)
	case host.ResultPlanned:
		parts = append(parts, "would go to "+r.To, "nothing was changed")
	case host.ResultUnchanged:
		text := strings.TrimSpace("nothing to do " + presentVersion(r))
		if p.Held != "" {
			text += fmt.Sprintf(": it is pinned, and %s is there; sox-host unpin %s%s", p.Held, p.Plugin, c.sameFolders())
		}
		parts = append(parts, text)
	case host.ResultRefused:
		parts = append(parts, "refused"+at(r)+": "+p.Error)
	default:
		parts = append(parts, "failed"+at(r)+": "+withoutStep(p))
	}
	switch {
	case r.Unknown > 0:
		parts = append(parts, count(r.Unknown, "call")+" failed at the drain limit")
	case hasCutOver(r):
		parts = append(parts, count(r.Failed, "call")+" failed")
	}
	if n := doneOn(p.Hosts); n > 1 && p.Exit == host.ExitDone && !req.DryRun {
		parts = append(parts, fmt.Sprintf("on %d hosts", n))
	}
	switch {
	case r.NoHost && undo != "" && p.Others > 0:
		parts = append(parts, notYet)
	case r.NoHost && undo != "":
		parts = append(parts, noHost)
	}
	if r.Result == host.ResultRefused || r.Result == host.ResultFailed {
		if stays := whatStays(p, req); stays != "" {
			parts = append(parts, stays)
		}
	}
	if p.Exit != host.ExitDone && r.Result != host.ResultRefused && r.Result != host.ResultFailed && p.Error != "" {
		parts = append(parts, p.Error)
	}
	if undo != "" && r.From != "" {
		undo += c.sameFolders()
		if r.Pinned != "" && r.Pinned != r.From { // or the rollback would be refused
			undo = "sox-host unpin " + p.Plugin + c.sameFolders() + " && " + undo
		}
		parts = append(parts, "undo: "+undo)
	}
	for i, part := range parts {
		parts[i] = oneLine(part)
	}
	return parts
}

// whatStays says what is served after an operation that failed or was refused, "" where that is not known.
func whatStays(p host.PluginRoll, req host.UpgradeRequest) string {
	from := p.Report.From
	switch {
	case notRunning(p) && (from == "" || req.Restart || before(p) == "broken"):
		return "nothing serves"
	case from == "":
		return ""
	case len(p.Hosts) == 0 || notRunning(p): // the next call starts it
		return from + " stays active"
	}
	return from + " still serves"
}

// before is the state of the plugin in the host that was asked first, "" if none was.
func before(p host.PluginRoll) string {
	if len(p.Hosts) == 0 {
		return ""
	}
	return p.Hosts[0].Before
}

// notRunning says that the host that was asked first had no process of the plugin, and none on its way.
func notRunning(p host.PluginRoll) bool { return before(p) == "cold" || before(p) == "broken" }

// direction is what an upgrade did: with a pin or a flag it may go down.
func direction(r host.Report) string {
	from, err := host.ParseVersion(r.From)
	to, err2 := host.ParseVersion(r.To)
	if err == nil && err2 == nil && to.Compare(from) < 0 {
		return "downgraded"
	}
	return "upgraded"
}

// doneOn counts the hosts that serve the plugin themselves.
func doneOn(hosts []host.HostReport) (n int) {
	for _, h := range hosts {
		if h.Outcome != host.OutcomeAttached {
			n++
		}
	}
	return n
}

func presentVersion(r host.Report) string {
	switch {
	case r.To != "":
		return "at " + r.To
	case r.From != "":
		return "at " + r.From
	}
	return ""
}

func at(r host.Report) string {
	if r.FailedStep == "" {
		return ""
	}
	return " at " + string(r.FailedStep)
}

// withoutStep is the error about a plugin without the step and the version, where the lines around it name them.
func withoutStep(p host.PluginRoll) string {
	return strings.TrimPrefix(p.Error, fmt.Sprintf("handshake with %s %s: %s: ", p.Plugin, p.Report.To, p.Report.FailedStep))
}

package main

import (
	"fmt"
	"strings"

	"github.com/sox-host/sox-host/host"
)

// printRoll shows what became of each plugin: from where to where, what it took, what it says about hosts, and one
// last line with the outcome and the way back.
func printRoll(c *call, report host.RollReport, req host.UpgradeRequest) {
	if len(report.Plugins) == 0 {
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

func printPlugin(c *call, p host.PluginRoll, req host.UpgradeRequest) {
	r := p.Report
	if header := movement(r); header != "" {
		c.printf("%s  %s\n", p.Plugin, header)
	}
	for _, parts := range [][]string{preparation(r), departure(r, req)} {
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

// hasCutOver says whether a client could have noticed: without a host there is none.
func hasCutOver(r host.Report) bool { return r.CutoverMS > 0 && !r.NoHost }

// departure is how the old generation went.
func departure(r host.Report, req host.UpgradeRequest) []string {
	if !hasCutOver(r) || r.From == "" {
		return nil
	}
	drained := "no calls to drain"
	if r.Drained+r.Unknown > 0 {
		drained = "drained " + count(r.Drained, "call") + " in " + millis(r.DrainMS)
	}
	stopped := "stopped " + r.From
	if req.Restart {
		stopped = "stopped the old process"
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
		parts, undo = append(parts, "upgraded to "+r.To), "sox-host rollback "+p.Plugin
	case host.ResultRolledBack:
		parts, undo = append(parts, "rolled back to "+r.To), "sox-host rollback "+p.Plugin
	case host.ResultRestarted:
		parts = append(parts, "restarted "+r.To)
	case host.ResultPlanned:
		parts = append(parts, "would go to "+r.To, "nothing was changed")
	case host.ResultUnchanged:
		parts = append(parts, strings.TrimSpace("nothing to do "+presentVersion(r)))
	case host.ResultRefused:
		parts = append(parts, "refused"+at(r)+": "+p.Error)
	default:
		parts = append(parts, "failed"+at(r)+": "+p.Error)
	}
	switch {
	case r.Unknown > 0:
		parts = append(parts, count(r.Unknown, "call")+" failed at the drain limit")
	case hasCutOver(r):
		parts = append(parts, count(r.Failed, "call")+" failed")
	}
	if len(p.Hosts) > 1 && p.Exit == host.ExitDone && !req.DryRun {
		parts = append(parts, fmt.Sprintf("on %d hosts", len(p.Hosts)))
	}
	if r.NoHost && undo != "" {
		parts = append(parts, "no host was running it: the next one starts it")
	}
	if (r.Result == host.ResultRefused || r.Result == host.ResultFailed) && r.From != "" {
		stays := " still serves"
		if len(p.Hosts) == 0 {
			stays = " stays active"
		}
		parts = append(parts, r.From+stays)
	}
	if p.Exit != host.ExitDone && r.Result != host.ResultRefused && r.Result != host.ResultFailed && p.Error != "" {
		parts = append(parts, p.Error)
	}
	if undo != "" && r.From != "" {
		parts = append(parts, "undo: "+undo+c.sameFolders())
	}
	for i, part := range parts {
		parts[i] = oneLine(part)
	}
	return parts
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

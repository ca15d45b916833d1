package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sox-host/sox-host/host"
)

// suggestFlag names the flag that was probably meant in a parse error about an unknown one.
func suggestFlag(fs *pflag.FlagSet, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return ""
	}
	var names []string
	fs.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	typed := unknown.GetSpecifiedName()
	if short := unknown.GetSpecifiedShortnames(); len(short) > 1 { // a long one behind a single dash
		typed, _, _ = strings.Cut(short, "=")
	}
	name := host.NearestWord(typed, names)
	if typed == "version" && fs.Lookup("to") != nil {
		name = "to"
	}
	if name != "" {
		return fmt.Sprintf(": did you mean --%s?", name)
	}
	return ""
}

// ourName returns the command that other programs call typed; "" for none.
func ourName(typed string) string {
	switch typed {
	case "ls":
		return "list"
	case "ps":
		return "status"
	case "show":
		return "info"
	case "add":
		return "install"
	case "rm", "delete", "uninstall":
		return "remove"
	case "update":
		return "upgrade"
	case "downgrade", "undo":
		return "rollback"
	case "reload":
		return "restart"
	case "run", "start":
		return "serve"
	case "check":
		return "doctor"
	case "init", "create":
		return "new"
	case "-v", "-V":
		return "version"
	}
	return ""
}

// suggestPlugin names the plugin that was probably meant by one that nobody knows, or else some that there are. It
// returns "" if there is none.
func (c *call) suggestPlugin(typed string) string {
	inventory, err := host.List(c.home, c.pluginsDir)
	if err != nil {
		return ""
	}
	var names []string
	for _, p := range inventory.Plugins {
		names = append(names, p.Plugin)
	}
	if len(names) == 0 || slices.Contains(names, typed) {
		return ""
	}
	if name := cmp.Or(host.NearestWord(typed, names), host.NearestWord(nameIn(typed), names)); name != "" {
		return fmt.Sprintf(": did you mean %q?", name)
	}
	return fmt.Sprintf("; sox-host list%s shows what there is: %s", c.sameFolders(), someOf(names))
}

// nameIn is the name of a plugin in what was typed for one: a file of it, with a path or without, a name with its
// version, or one in other letters.
func nameIn(typed string) string {
	name := strings.ToLower(filepath.Base(typed))
	if i := strings.Index(name, "_v"); i > 0 {
		name = name[:i]
	}
	name, _, _ = strings.Cut(name, "@")
	return strings.ReplaceAll(strings.TrimSuffix(name, ".json"), "_", "-")
}

// suggested adds such a suggestion to a text about an unknown plugin. Who mistyped a name need not drop a file of it.
func suggested(text, name, hint string) string {
	if strings.HasPrefix(hint, ":") {
		text = strings.Replace(text, host.DropAdvice(name), "", 1)
	}
	return text + hint
}

// suggestRunning says of a plugin that no running host has what else there is: the plugin on disk, a name that was
// probably meant, or those that the hosts have.
func (c *call) suggestRunning(typed string, running []string) string {
	inventory, err := host.List(c.home, c.pluginsDir)
	if err == nil && slices.ContainsFunc(inventory.Plugins, func(p host.PluginInfo) bool { return p.Plugin == typed }) {
		return fmt.Sprintf("; it is in the plugins folder: sox-host info %s%s", typed, c.sameFolders())
	}
	if name := host.NearestWord(typed, running); name != "" {
		return fmt.Sprintf(": did you mean %q?", name)
	}
	if len(running) == 0 {
		return "; they have none"
	}
	return "; they have " + someOf(running)
}

// maxNamed is how many names a message lists.
const maxNamed = 8

func someOf(names []string) string {
	if len(names) <= maxNamed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
}

// suggestPlugins does the same in a report.
func (c *call) suggestPlugins(report *host.RollReport) {
	for i := range report.Plugins {
		p := &report.Plugins[i]
		if p.Exit == host.ExitNotFound || p.Exit == host.ExitNoHost {
			p.Error = suggested(p.Error, p.Plugin, c.suggestPlugin(p.Plugin))
		}
	}
}

// suggestPrereleases says of plugins for which no version was chosen, and which have nothing but prereleases, how the
// command is told to take one. Builds of sox-host dev are prereleases too.
func (c *call) suggestPrereleases(command string, report *host.RollReport, req host.UpgradeRequest) {
	if req.To != "" || req.Constraint != "" || req.Prerelease || req.Rollback || req.Restart {
		return
	}
	for i := range report.Plugins {
		p := &report.Plugins[i]
		if p.Exit != host.ExitNotFound {
			continue
		}
		inventory, err := host.List(c.home, c.pluginsDir)
		at := slices.IndexFunc(inventory.Plugins, func(info host.PluginInfo) bool { return info.Plugin == p.Plugin })
		if err != nil || at < 0 {
			continue
		}
		if advice := onlyPrereleases(command, inventory.Plugins[at], c.sameFolders()); advice != "" {
			p.Error = advice
		}
	}
}

// onlyPrereleases is the advice about a plugin without a release, "" if it has one, has no version at all, or is pinned.
func onlyPrereleases(command string, p host.PluginInfo, folders string) string {
	highest := host.Version{}
	for _, f := range p.Files {
		switch {
		case f.Verdict != host.VerdictReady:
		case f.Version.Prerelease() == "":
			return ""
		case highest.IsZero() || f.Version.Compare(highest) > 0:
			highest = f.Version
		}
	}
	switch {
	case highest.IsZero(), p.Pin != nil:
		return ""
	case highest == p.Active.Version:
		return fmt.Sprintf("%s has no other version than the active %s, a prerelease: install one first, by sox-host install PROGRAM --name %s --version X.Y.Z%s",
			p.Plugin, highest, p.Plugin, folders)
	}
	return fmt.Sprintf("%s has no release, only prereleases: to take %s, run sox-host %s %s --to %s%s",
		p.Plugin, highest, command, p.Plugin, highest, folders)
}

package main

import (
	"testing"

	"github.com/sox-host/sox-host/host"
)

// After sox-host dev a plugin may have prereleases alone. What to do then is one command.
func TestOnlyPrereleasesNamesTheCommand(t *testing.T) {
	version := func(s string) (v host.Version) {
		if err := v.UnmarshalText([]byte(s)); err != nil {
			t.Fatal(err)
		}
		return v
	}
	for name, c := range map[string]struct {
		files  []string
		active string
		pinned bool
		want   string
	}{
		"highest_of_several": {[]string{"0.0.0-dev.9", "0.0.0-dev.10"}, "", false,
			"notes has no release, only prereleases: to take 0.0.0-dev.10, run sox-host diff notes --to 0.0.0-dev.10 --home /h"},
		"all_there_is_is_active": {[]string{"0.0.0-dev.1"}, "0.0.0-dev.1", false,
			"notes has no other version than the active 0.0.0-dev.1, a prerelease: install one first, by sox-host install PROGRAM --name notes --version X.Y.Z --home /h"},
		"has_a_release": {[]string{"0.0.0-dev.1", "0.1.0"}, "", false, ""},
		"has_nothing":   {nil, "", false, ""},
		"is_pinned":     {[]string{"0.0.0-dev.1"}, "", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := host.PluginInfo{Plugin: "notes"}
			for _, v := range c.files {
				p.Files = append(p.Files, host.PluginFile{Version: version(v), Verdict: host.VerdictReady})
			}
			if c.active != "" {
				p.Active.Version = version(c.active)
			}
			if c.pinned {
				p.Pin = &host.Pin{Version: version("1.0.0")}
			}
			if got := onlyPrereleases("diff", p, " --home /h"); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

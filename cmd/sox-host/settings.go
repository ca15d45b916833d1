package main

import (
	"fmt"
	"io"

	"github.com/sox-host/sox-host/host"
)

// settingsTopic is the help about settings: sox-host help settings.
const settingsTopic = "settings"

func settingsHelp(w io.Writer) {
	fmt.Fprint(w, `A plugin's settings are NAME.json in the plugins folder, one JSON object; every member may be left
out. A member that is not in this list is an error, shown by sox-host list and sox-host doctor.
Durations are texts such as "500ms", "30s" or "5m".

`)
	t := newHelpTable(w)
	t.row("MEMBER", "TYPE", "DEFAULT", "MEANING")
	for _, s := range host.SettingsHelp() {
		t.row(s.Member, s.Type, s.Default, s.Text)
	}
	t.print()
	fmt.Fprint(w, `
A running host follows changes of "tools", "read_only" and "order" at once. "env", "env_allow",
"args" and "lifetime" act when the process starts next: run sox-host restart NAME. "constraint"
acts at the next upgrade, and the other members when the client starts its next host. Settings that
are wrong change nothing of what runs, and no process of the plugin starts with them. Keep the file
to yourself if "env" has secrets in it: chmod 600 NAME.json.

Example:
  {"env": {"NOTES_DIR": "/home/me/notes"}, "constraint": "< 2", "tools": {"deny": ["wipe"]}}
`)
}

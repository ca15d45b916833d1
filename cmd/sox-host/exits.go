package main

import (
	"fmt"
	"io"

	"github.com/sox-host/sox-host/host"
)

// exitTopic is the help about exit codes: sox-host help exit-codes.
const exitTopic = "exit-codes"

// exitMeaning says in help what an exit code means, whatever the command.
func exitMeaning(code host.Exit) string {
	switch code {
	case host.ExitDone:
		return "done, or nothing to do"
	case host.ExitFailed:
		return "it failed, and the message says why"
	case host.ExitUsage:
		return "wrong arguments"
	case host.ExitNotFound:
		return "no such plugin, version, file or folder"
	case host.ExitVerify:
		return "the bytes are not the expected ones"
	case host.ExitRefused:
		return "refused, by a rule that the message names, with the way around it"
	case host.ExitNoHost:
		return "no running host"
	case host.ExitDeadline:
		return "a time limit passed"
	case host.ExitPartial:
		return "some of several plugins, files or hosts failed"
	case host.ExitBusy:
		return "another operation on the plugin is running"
	case host.ExitPending:
		return "there is something to change, with --exit-code"
	}
	return ""
}

func exitRow(code host.Exit, meaning string) []string {
	return []string{fmt.Sprintf("  %2d", code), meaning}
}

// exitHelp lists all codes and what leads to them.
func exitHelp(w io.Writer) {
	fmt.Fprint(w, `Every command ends with one of these codes; sox-host help COMMAND shows which of them that one
has. With --json the result has the same number in "exit", as far as it can tell one.

`)
	t := newHelpTable(w)
	for _, code := range []host.Exit{
		host.ExitDone, host.ExitFailed, host.ExitUsage, host.ExitNotFound, host.ExitVerify, host.ExitRefused,
		host.ExitNoHost, host.ExitDeadline, host.ExitPartial, host.ExitBusy, host.ExitPending,
	} {
		t.row(exitRow(code, exitMeaning(code))...)
	}
	t.print()
	fmt.Fprint(w, `
Refused are a version that a pin rules out, a downgrade, a breaking change of what a plugin offers,
two files for one version, other bytes under the name of a version, and a folder that others can
write. An upgrade of a pinned plugin that names no version stays at the pin and ends with 0.
`)
}

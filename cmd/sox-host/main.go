// Sox-host runs versioned plugin backends behind one pipe and replaces them while calls are in flight. The command
// line serves a client, and tells a running host what to do. One file per command; command.go is what they share.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/sox-host/sox-host/host"
)

// commands in the order of the overview.
func commands() []*command {
	return []*command{
		serveCommand(),
		listCommand(),
		statusCommand(),
		infoCommand(),
		upgradeCommand(),
		rollbackCommand(),
		restartCommand(),
		diffCommand(),
		pinCommand(),
		unpinCommand(),
		installCommand(),
		removeCommand(),
		importCommand(),
		toolsCommand(),
		callCommand(),
		logsCommand(),
		verifyCommand(),
		doctorCommand(),
		newCommand(),
		devCommand(),
		completionCommand(),
		versionCommand(),
		guardCommand(),
		completePluginsCommand(),
	}
}

func main() {
	// A client's leaked descriptors must not reach plugins. Where the system cannot do that, there are none to keep.
	if err := host.MarkInheritedCloexec(); err != nil && runtime.GOOS != "windows" {
		fmt.Fprintf(os.Stderr, "sox-host: %v\n", err)
	}
	os.Exit(int(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)))
}

// run executes one command line. It installs the handlers for the signals that end it.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) host.Exit {
	if len(args) > 0 && args[0] == host.GuardCommand {
		return host.Exit(host.RunGuard(args[1:])) // before anything of ours touches signals
	}
	ctx, stop := untilSignal()
	defer stop()

	if len(args) > 0 && args[0] == "serve" { // a client waits for it, and it needs none of the others
		return serveCommand().execute(ctx, args[1:], stdin, stdout, stderr)
	}
	all := commands()
	name, rest := "help", []string(nil)
	if len(args) > 0 {
		name, rest = args[0], args[1:]
	}
	switch name {
	case "help", "-h", "--help":
		if len(rest) == 0 || strings.HasPrefix(rest[0], "-") || rest[0] == "help" {
			if len(args) == 0 {
				overview(stderr, all)
				return host.ExitUsage
			}
			overview(stdout, all)
			return host.ExitDone
		}
		if show := topics()[rest[0]]; show != nil {
			show(stdout)
			return host.ExitDone
		}
		name, rest = rest[0], []string{"--help"}
	case "--version":
		name = "version"
	}
	cmd := find(all, name)
	if cmd == nil {
		fmt.Fprintf(stderr, "sox-host: unknown command %q%s\nRun sox-host help for the list of commands.\n", name, suggestCommand(all, name))
		return host.ExitUsage
	}
	return cmd.execute(ctx, rest, stdin, stdout, stderr)
}

// untilSignal returns a context that the first signal to end cancels; the second ends the process at once. The
// handlers are installed beside the start, of which threads for them are a tenth. A signal before that ends a process
// that has begun nothing.
func untilSignal() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	// Ends with ctx.
	go func() {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		defer signal.Stop(signals)
		select {
		case s := <-signals:
			cancel(fmt.Errorf("signal received: %s", s))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// topics are the helps that belong to no command.
func topics() map[string]func(io.Writer) {
	return map[string]func(io.Writer){settingsTopic: settingsHelp, exitTopic: exitHelp}
}

func find(all []*command, name string) *command {
	for _, c := range all {
		if c.name == name {
			return c
		}
	}
	return nil
}

func suggestCommand(all []*command, typed string) string {
	if topics()[typed] != nil {
		return ": it is a topic of the help, sox-host help " + typed
	}
	var names []string
	for _, c := range all {
		if !c.hidden {
			names = append(names, c.name)
		}
	}
	if name := cmp.Or(ourName(typed), host.NearestWord(typed, names)); name != "" {
		return fmt.Sprintf(": did you mean %q?", name)
	}
	return ""
}

func overview(w io.Writer, all []*command) {
	fmt.Fprint(w, `sox-host runs plugins for an AI client behind one pipe, and swaps their versions while calls are in
flight.

  1. Put plugins into ~/.sox/plugins, named NAME_vX.Y.Z, with sox-host install FILE; or take over
     the servers that a client has, with sox-host import FILE.
  2. Give your client one server: sox-host serve
  3. Install a newer version beside the old one and run: sox-host upgrade NAME

Commands:
`)
	t := newHelpTable(w)
	for _, c := range all {
		if !c.hidden {
			t.row("  "+c.name, c.short)
		}
	}
	t.print()
	fmt.Fprint(w, `
Every command takes --json, --home and --plugins-dir (or SOX_HOME and SOX_PLUGINS_DIR).

  sox-host help COMMAND      what a command does, with examples, flags and exit codes
  sox-host help settings     what NAME.json may say about a plugin
  sox-host help exit-codes   all exit codes
`)
}

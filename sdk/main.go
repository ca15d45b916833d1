package sdk

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
)

// EnvReadOnly set to 1 locks the plugin read-only, as --read-only does.
const EnvReadOnly = "SOX_PLUGIN_READ_ONLY"

// EnvLockFD is the number of the descriptor under which a plugin that listens on SOX_PLUGIN_SOCKET inherits the life lock of that socket from the
// process that started it. Without it the plugin takes the lock itself.
const EnvLockFD = "SOX_PLUGIN_LOCK_FD"

// Main runs the plugin and exits: 0 when it was told to stop or the host went away, 1 on a failure, 2 on wrong usage. Call it last in main.
//
// How it serves follows from the environment that the host sets; started by hand it is an ordinary MCP server on stdin and stdout, and on a
// terminal it says what it is and exits. --version, --help and --read-only are understood. What the program prints to os.Stdout goes to stderr.
func Main(p *Plugin) {
	os.Exit(run(p, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is Main with its surroundings.
func run(p *Plugin, args []string, stdin, stdout, stderr *os.File) int {
	flags := flag.NewFlagSet(p.name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	version := flags.Bool("version", false, "print name and version")
	readOnly := flags.Bool("read-only", false, "refuse everything that is not declared read-only")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, p.usage())
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "%s: %v\n\n%s", p.name, err, p.usage())
		return 2
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "%s: unexpected argument %q\n\n%s", p.name, flags.Arg(0), p.usage())
		return 2
	case *version:
		fmt.Fprintf(stdout, "%s %s\n", p.name, p.version)
		return 0
	}
	if *readOnly {
		p.LockReadOnly()
	}
	if startedBy(os.Getenv) == byHand && isTerminal(stdin) {
		fmt.Fprint(stdout, p.describe())
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	// A log line to a stderr that nobody reads any more must not kill the process. Ignoring the signal would pass that on to children.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	if err := Serve(ctx, p); err != nil {
		p.logger.Error("stopped", "error", err)
		return 1
	}
	return 0
}

// ServeOption changes how Serve finds its peer.
type ServeOption func(*serving)

// serving is what ServeOptions set.
type serving struct {
	in  io.Reader
	out io.Writer
}

// Stdio makes Serve speak lines over in and out instead of the process's own stdin and stdout when the plugin was started by hand.
func Stdio(in io.Reader, out io.Writer) ServeOption {
	return func(s *serving) { s.in, s.out = in, out }
}

// Serve runs the plugin as the environment says, until the host is done with it, ctx ends, or something breaks. It removes the variables that
// started it from the environment, so that children do not take them for theirs, and lets os.Stdout point to stderr: in none of the ways to start
// does a stray print reach the protocol.
func Serve(ctx context.Context, p *Plugin, opts ...ServeOption) error {
	var s serving
	for _, set := range opts {
		set(&s)
	}
	if on := os.Getenv(EnvReadOnly); on != "" && on != "0" {
		p.locked = true
	}
	how := startedBy(os.Getenv)
	if err := speaks(os.Getenv(wire.EnvProtocols)); err != nil && how != byHand {
		return err
	}
	name := os.Getenv(wire.EnvName)
	if how != byHand && name != "" && name != p.name {
		p.logger.Warn("the file is named for another plugin", "file", name)
	}
	if how != byHand || s.in == nil {
		real, err := takeStdout()
		if err != nil {
			return err
		}
		if s.in == nil {
			s.in, s.out = os.Stdin, real
		}
	}
	switch how {
	case byDescriptor:
		conn, err := inheritedConn(os.Getenv(wire.EnvFD))
		forgetStart()
		if err != nil {
			return fmt.Errorf("%s: %w", wire.EnvFD, err)
		}
		return p.ServeConn(ctx, conn)
	case byPath, byListener:
		l, err := listen(how, os.Getenv(wire.EnvSocket))
		forgetStart()
		if err != nil {
			return err
		}
		return ServeListener(ctx, p, l)
	}
	forgetStart()
	return newServer(p).serveLines(ctx, s.in, s.out)
}

// speaks checks the range of protocols that the host offers, "MIN-MAX"; none offered is no objection.
func speaks(offered string) error {
	if offered == "" {
		return nil
	}
	var r wire.ProtocolRange
	if n, err := fmt.Sscanf(offered, "%d-%d", &r.Min, &r.Max); err != nil || n != 2 {
		return fmt.Errorf("%s=%q is not a range of protocols", wire.EnvProtocols, offered)
	}
	if wire.Protocol < r.Min || wire.Protocol > r.Max {
		return fmt.Errorf("the host speaks protocol %s, this plugin speaks %d: rebuild it with the SDK of the host's release", r, wire.Protocol)
	}
	return nil
}

// start says who started the process.
type start uint8

const (
	byHand       start = iota
	byDescriptor       // SOX_PLUGIN_FD
	byPath             // SOX_PLUGIN_SOCKET
	byListener         // SOX_PLUGIN_LISTEN_FD, or LISTEN_FDS for this process
)

func startedBy(getenv func(string) string) start {
	switch {
	case getenv(wire.EnvFD) != "":
		return byDescriptor
	case getenv(wire.EnvListenFD) != "":
		return byListener
	case getenv(wire.EnvSocket) != "":
		return byPath
	case getenv("LISTEN_PID") == fmt.Sprint(os.Getpid()) && getenv("LISTEN_FDS") != "":
		return byListener
	}
	return byHand
}

// forgetStart removes what started this process from its environment.
func forgetStart() {
	for _, name := range []string{wire.EnvFD, wire.EnvSocket, wire.EnvListenFD, wire.EnvProtocols, wire.EnvName, EnvLockFD} {
		os.Unsetenv(name)
	}
}

// stdoutOnce: the process's stdout is taken once, whoever serves.
var stdoutOnce struct {
	sync.Once
	file *os.File
	err  error
}

// takeStdout returns the process's real stdout for the protocol and lets everything else that writes there write to stderr.
func takeStdout() (*os.File, error) {
	stdoutOnce.Do(func() {
		stdoutOnce.file, stdoutOnce.err = divertStdout()
		if stdoutOnce.err == nil {
			os.Stdout = os.Stderr
		}
	})
	return stdoutOnce.file, stdoutOnce.err
}

// usage is the text of --help.
func (p *Plugin) usage() string {
	return fmt.Sprintf(`usage: %s [--read-only] [--version] [--help]

Without flags it serves: the host that started it, or, started by hand, one MCP
client on stdin and stdout.

  --read-only   refuse everything that is not declared read-only
  --version     print name and version
  --help        print this

%s`, p.name, p.describe())
}

// describeTime bounds the listing of tools for a person who waits for it: 2 s.
const describeTime = 2 * time.Second

// describe says what the plugin is, to a person.
func (p *Plugin) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s, a sox-host plugin", p.name, p.version)
	if p.title != "" {
		fmt.Fprintf(&b, ": %s", p.title)
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.GoVersion != "" {
		fmt.Fprintf(&b, " (%s)", info.GoVersion)
	}
	b.WriteString("\n")
	if lister, ok := p.mcpServer().(ToolLister); ok {
		ctx, cancel := context.WithTimeout(context.Background(), describeTime)
		tools, err := lister.Tools(ctx)
		cancel()
		if err != nil {
			fmt.Fprintf(&b, "\ntools: cannot be listed: %v\n", err)
		}
		if len(tools) > 0 {
			b.WriteString("\ntools:\n")
		}
		for _, t := range tools {
			fmt.Fprintf(&b, "  %-20s %s\n", t.Name, firstLine(t.Description))
		}
	}
	if methods := p.ready().Methods; len(methods) > 0 {
		b.WriteString("\nmethods:\n")
		for _, m := range methods {
			fmt.Fprintf(&b, "  %s\n", m)
		}
	}
	fmt.Fprintf(&b, `
It is started by a host, not by hand. To install it, copy it into the plugins
folder and switch to it:

  cp %s ~/.sox/plugins/%s_v%s
  sox-host upgrade %s

Any MCP client can also start it directly and talk to it on stdin and stdout.
`, os.Args[0], p.name, p.version, p.name)
	return b.String()
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

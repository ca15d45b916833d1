package sdk

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
	_ "github.com/sox-host/sox-host/sdk/internal/stack" // comes before all that needs a deep one
)

// EnvReadOnly set to 1 locks the plugin read-only, as --read-only does.
const EnvReadOnly = "SOX_PLUGIN_READ_ONLY"

// EnvLockFD is the number of the descriptor under which a plugin that listens on SOX_PLUGIN_SOCKET inherits the life
// lock of that socket from the process that started it. Without it the plugin takes the lock itself.
const EnvLockFD = wire.EnvLockFD

// EnvIdleMS is after how many milliseconds without work the plugin stops, as its user wants it: it wins over
// [RetireWhenIdle].
const EnvIdleMS = wire.EnvIdleMS

// DefaultSharedIdle is when a plugin stops that several hosts share, if neither its author nor its user says
// otherwise: after 10 minutes without work. Nobody else ends such a process. Ten minutes outlast the pauses of a
// conversation, and the next call starts it again.
const DefaultSharedIdle = 10 * time.Minute

// Main runs the plugin and exits: 0 when it was told to stop or the host went away, 1 on a failure, 2 on wrong usage.
// Call it last in main.
//
// How it serves follows from the environment that the host sets; started by hand it is an ordinary MCP server on stdin
// and stdout, and on a terminal it says what it is and exits. --version, --help and --read-only are understood. What
// the program prints to os.Stdout goes to stderr.
func Main(p *Plugin) {
	os.Exit(run(p, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is Main with its surroundings.
func run(p *Plugin, args []string, stdin, stdout, stderr *os.File) int {
	if code, done := p.arguments(args, stdout, stderr); done {
		return code
	}
	if startedBy(os.Getenv) == byHand && isTerminal(stdin) {
		fmt.Fprint(stdout, p.describe())
		return 0
	}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	s := serving{signals: func() { endOnSignal(end) }}
	if err := s.serve(ctx, p); err != nil {
		p.Logger().Error("stopped", "error", err)
		return 1
	}
	return 0
}

// endOnSignal calls end when somebody wants the process to end. A second signal ends it at once.
func endOnSignal(end func()) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { stop(); end() })
	// A log line to a stderr that nobody reads any more must not kill the process. Ignoring the signal would pass that
	// on to children.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}

// arguments does what flags ask for; done says that this was all. Package flag is not linked for these three.
func (p *Plugin) arguments(args []string, stdout, stderr io.Writer) (code int, done bool) {
	for _, arg := range args {
		switch arg {
		case "--read-only", "-read-only":
			p.LockReadOnly()
		case "--version", "-version":
			fmt.Fprintf(stdout, "%s %s\n", p.name, p.version)
			return 0, true
		case "--help", "-help", "-h":
			fmt.Fprint(stdout, p.usage())
			return 0, true
		default:
			// Not the whole usage: it would push the error out of what a host or a person sees last.
			fmt.Fprintf(stderr, "%s: unexpected argument %q\nrun %s --help to see what it takes\n", p.name, arg, os.Args[0])
			return 2, true
		}
	}
	return 0, false
}

// serving is one run of Serve.
type serving struct {
	signals func() // watches signals; nil when the caller of Serve does
}

// Serve is Main without its arguments, signals and exit, for programs that do more than to serve: it runs the plugin as
// the environment says, until the host is done with it, ctx ends, or something breaks, which is the error. It removes the
// variables that started it from the environment, so that children do not take them for theirs, and lets os.Stdout point
// to stderr: in none of the ways to start does a stray print reach the protocol. One Serve at a time in a process.
func Serve(ctx context.Context, p *Plugin) error { return new(serving).serve(ctx, p) }

func (s *serving) serve(ctx context.Context, p *Plugin) error {
	if on := os.Getenv(EnvReadOnly); on != "" && on != "0" {
		p.locked = true
	}
	how := startedBy(os.Getenv)
	if err := speaks(os.Getenv(wire.EnvProtocols)); err != nil && how != byHand {
		return err
	}
	name := os.Getenv(wire.EnvName)
	if how != byHand && name != "" && name != p.name {
		p.Logger().Warn("the file is named for another plugin", "file", name)
	}
	var stdout *os.File // of the protocol, when there is no host
	if how == byHand {
		var err error
		if stdout, err = takeStdout(); err != nil {
			return err
		}
	} else if err := silenceStdout(); err != nil {
		return err
	}
	switch how {
	case byDescriptor:
		conn, err := p.announce(os.Getenv(wire.EnvFD))
		forgetStart()
		if err != nil {
			return fmt.Errorf("%s: %w", wire.EnvFD, err)
		}
		// Whatever can wait comes after the ready frame, and before the first read: until then nothing is in flight
		// that could be cut short.
		s.watchSignals()
		srv := newServer(p)
		defer srv.finish()
		return srv.newConn(ctx, conn, false).run(ctx)
	case byPath, byListener:
		s.watchSignals()
		if err := p.retireAsToldTo(os.Getenv(EnvIdleMS), os.Getenv(EnvLockFD) != ""); err != nil {
			return err
		}
		l, err := listen(how, os.Getenv(wire.EnvSocket))
		forgetStart()
		if err != nil {
			return err
		}
		return ServeListener(ctx, p, l)
	}
	s.watchSignals()
	forgetStart()
	return newServer(p).serveLines(ctx, os.Stdin, stdout)
}

func (s *serving) watchSignals() {
	if s.signals != nil {
		s.signals()
	}
}

// speaks checks the range of protocols that the host offers, "MIN-MAX"; none offered is no objection.
func speaks(offered string) error {
	if offered == "" {
		return nil
	}
	r, err := wire.ParseProtocolRange(offered)
	if err != nil {
		return fmt.Errorf("%s: %w", wire.EnvProtocols, err)
	}
	if !r.Contains(wire.Protocol) {
		return fmt.Errorf("the host speaks protocol %s, this plugin speaks %d: rebuild it with the SDK of the host's release", r, wire.Protocol)
	}
	return nil
}

// retireAsToldTo sets when the plugin stops by itself: idleMS is the value of EnvIdleMS, shared says that a host started
// it for all hosts, and that therefore no host will stop it.
func (p *Plugin) retireAsToldTo(idleMS string, shared bool) error {
	switch {
	case idleMS != "":
		ms, err := strconv.ParseInt(idleMS, 10, 64)
		if err != nil || ms <= 0 || ms > math.MaxInt64/int64(time.Millisecond) {
			return fmt.Errorf("%s=%q is not a number of milliseconds", EnvIdleMS, idleMS)
		}
		p.idle = time.Duration(ms) * time.Millisecond
	case shared && p.idle == 0:
		p.idle = DefaultSharedIdle
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
	for _, name := range []string{wire.EnvFD, wire.EnvSocket, wire.EnvListenFD, wire.EnvProtocols, wire.EnvName, EnvLockFD, EnvIdleMS} {
		os.Unsetenv(name)
	}
}

// stdoutOnce: the process's stdout is taken once, whoever serves.
var stdoutOnce struct {
	sync.Once
	file *os.File
	err  error
}

// takeStdout returns the process's real stdout for the protocol and lets everything else that writes there write to
// stderr.
func takeStdout() (*os.File, error) {
	stdoutOnce.Do(func() {
		if stdoutOnce.file, stdoutOnce.err = duplicateStdout(); stdoutOnce.err == nil {
			stdoutOnce.err = silenceStdout()
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
It is for a host, which can replace it by another version under its clients.
To install it and switch to it:

  sox-host install %s --name %s --version %s --start

Any MCP client can also start it itself, and talk to it on stdin and stdout.
`, os.Args[0], p.name, p.version)
	return b.String()
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

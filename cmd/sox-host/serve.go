package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/sox-host/sox-host/host"
)

const (
	// minProcs is the least GOMAXPROCS of a host: with fewer, a goroutine that comes back from a blocking read waits
	// for a free processor, which costs a sixth of a round trip on one or two cores.
	//
	// A larger GOGC was tried and lost: with 200 and 400 a request takes 0.97 to 1.4 of the time at 100 B, and 1.0 to 1.4 at
	// 60 KiB, whose buffers leave the cache more often (interleaved, 7 rounds, linux/amd64, everything on one core).
	minProcs = 4
	// procsDelay is when that is set, 10 ms after the start: it stops the world, and the first answers come from the
	// cache without it.
	procsDelay = 10 * time.Millisecond
)

// serveFlags are the flags of serve.
type serveFlags struct {
	cfg         host.Config
	watch       string
	logLevel    string
	listWait    time.Duration
	maxLine     byteSize
	maxOutput   byteSize
	projectPath string
	attach      []string
	noGuard     bool
}

func serveCommand() *command {
	var f serveFlags
	return &command{
		name:      "serve",
		short:     "Serve a client over stdin and stdout",
		jsonUsage: "write log lines as JSON",
		help: `This is the one server to list in an MCP client. It speaks JSON-RPC, one object per
line, and ends when stdin ends. Plugins of the folder are offered together, their
tools named PLUGIN__TOOL; with --plugin one plugin is offered under its own names.
Logs go to stderr. Started by hand it prints nothing: it waits for a client's first line.
A plugins folder that is missing, or that others can write, is no end: stderr, the client's
instructions and sox-host status say so, and it is looked at until it can be used.
With --attach a plugin is used that was started by hand, perhaps in a debugger, with
SOX_PLUGIN_SOCKET=SOCKET.

Examples:
  sox-host serve
  sox-host serve --plugin notes --client-project-path "$PWD"
  sox-host serve --max-line-bytes 64KiB --log-level debug
  sox-host serve --attach notes=/home/me/run/notes.sock
  claude mcp add sox -- sox-host serve
`,
		exits: []host.Exit{host.ExitDone, host.ExitFailed, host.ExitUsage, host.ExitNotFound, host.ExitRefused},
		means: map[host.Exit]string{
			host.ExitDone: "the client has ended, or a signal came", host.ExitFailed: "it could not start, or lost its client",
			host.ExitNotFound: "there is no file of a plugin that is required", host.ExitRefused: "others can write the home folder",
		},
		flags: f.declare,
		run:   f.run,
	}
}

func (f *serveFlags) declare(fs *pflag.FlagSet) {
	fs.StringVar(&f.cfg.Plugin, "plugin", "", "serve only the plugin of this `name`, under its own names")
	fs.StringVar(&f.projectPath, "client-project-path", "", "project `folder` that every tool call carries in its _meta")
	fs.BoolVar(&f.cfg.ReadOnly, "read-only", false, "refuse everything that is not known to be a read")
	fs.StringArrayVar(&f.attach, "attach", nil, "connect to a plugin that somebody else runs, by `NAME=SOCKET`, and never start or end it; may be repeated")
	fs.StringVar(&f.watch, "watch", "new", "`what` to do about new files: new (start new plugins), all (also upgrade) or off")
	fs.DurationVar(&f.listWait, "list-wait", host.DefaultListWait, "how long the first list waits for plugins that start")
	fs.DurationVar(&f.cfg.DrainTimeout, "drain-timeout", 0, drainUsage)
	fs.Var(&f.maxLine, "max-line-bytes", "longest line from the client (default: 16MiB)")
	fs.Var(&f.maxOutput, "max-output-bytes", "longest line to the client (default: 9MiB)")
	fs.IntVar(&f.cfg.MaxNameLength, "max-name-length", host.DefaultMaxNameLength, "longest tool name, in `characters`; longer ones are cut and get a hash")
	fs.BoolVar(&f.noGuard, "no-guard", false, "start plugins without a guard process each: what they start may outlive a host that is killed")
	fs.StringVar(&f.logLevel, "log-level", "info", "`level`: trace, debug, info, warn, error or off")
	fs.Lookup("max-line-bytes").DefValue = ""
	fs.Lookup("max-output-bytes").DefValue = ""
}

func (f *serveFlags) run(ctx context.Context, c *call) error {
	if runtime.GOOS == "windows" {
		return errors.New("serve needs Linux or macOS: Windows lacks the socketpairs, process groups and file owners that plugins are started and protected with")
	}
	cfg, err := f.config(c)
	if err != nil {
		return err
	}
	// A closed reader of stdout must be an error of a write and not the end of the process before plugins are stopped.
	// Ignoring the signal would be inherited by plugins; catching it is not. Beside the start, as untilSignal is.
	go signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < minProcs {
		defer time.AfterFunc(procsDelay, func() { runtime.GOMAXPROCS(minProcs) }).Stop()
	}
	os.Stdout = os.Stderr // whoever prints without thinking must not reach the client
	cfg.Absent = absent(c, cfg)
	h, err := host.New(cfg)
	if err != nil {
		return err
	}
	if cfg.Absent != "" {
		cfg.Logger.Warn(cfg.Absent)
	}
	return h.Run(ctx)
}

// absent says that the one plugin to serve is not there, "" if it is. The host waits for its file all the same; people see
// only what their client shows them of its server, so it is told too.
func absent(c *call, cfg host.Config) string {
	if cfg.Plugin == "" || cfg.Attach[cfg.Plugin] != "" {
		return ""
	}
	inventory, err := host.List(c.home, c.pluginsDir)
	known := func(p host.PluginInfo) bool { return p.Plugin == cfg.Plugin }
	if err != nil || slices.ContainsFunc(inventory.Plugins, known) {
		return "" // what is wrong with the folder the host says itself
	}
	return fmt.Sprintf("no plugin %q in %s%s", cfg.Plugin, c.pluginsDir, c.suggestPlugin(cfg.Plugin))
}

// config builds the host's configuration from the flags.
func (f *serveFlags) config(c *call) (host.Config, error) {
	cfg := f.cfg
	if err := c.folders(); err != nil {
		return cfg, err
	}
	cfg.Home, cfg.PluginsDir = c.home, c.pluginsDir
	cfg.In, cfg.Out = c.stdin, c.stdout
	cfg.MaxLineBytes, cfg.MaxOutputBytes = int(f.maxLine), int(f.maxOutput)
	if !f.noGuard {
		cfg.Guard = guardLine()
	}
	cfg.Version = readVersion().Version

	if cfg.ListWait = f.listWait; f.listWait == 0 {
		cfg.ListWait = -1 // in a Config 0 is the default
	}
	if f.listWait < 0 || cfg.DrainTimeout < 0 {
		return cfg, usagef("a time limit cannot be negative")
	}
	switch cfg.Watch = host.WatchMode(f.watch); cfg.Watch {
	case host.WatchNew, host.WatchAll, host.WatchOff:
	default:
		return cfg, usagef("--watch %q: want new, all or off", f.watch)
	}
	var err error
	if cfg.Attach, err = parseAttach(f.attach); err != nil {
		return cfg, err
	}
	if f.projectPath != "" {
		path, err := filepath.Abs(f.projectPath)
		if err != nil {
			return cfg, fmt.Errorf("--client-project-path: %w", err)
		}
		cfg.ClientProjectPath = path
	}
	cfg.Logger, err = newLogger(c.stderr, f.logLevel, c.json)
	return cfg, err
}

// parseAttach reads NAME=SOCKET. Whether names and paths can be used is for the host to say.
func parseAttach(pairs []string) (map[string]string, error) {
	attach := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		name, path, ok := strings.Cut(pair, "=")
		switch {
		case !ok || name == "" || path == "":
			return nil, usagef("--attach %q: want NAME=SOCKET, the plugin's name and the path it listens on", pair)
		case attach[name] != "":
			return nil, usagef("--attach: plugin %q is named twice", name)
		}
		attach[name] = path
	}
	return attach, nil
}

// newLogger writes to stderr, as text or as one JSON object per line.
func newLogger(w io.Writer, level string, asJSON bool) (hclog.Logger, error) {
	l := hclog.LevelFromString(level)
	if l == hclog.NoLevel {
		return nil, usagef("--log-level %q: want trace, debug, info, warn, error or off", level)
	}
	return hclog.New(&hclog.LoggerOptions{Level: l, Output: w, JSONFormat: asJSON}), nil
}

// guardLine is how this program starts itself as a guard. On Linux the running file is named by the kernel, so that
// an upgrade of sox-host itself does not change the guards of a host that runs.
func guardLine() []string {
	if runtime.GOOS == "linux" {
		return []string{"/proc/self/exe", host.GuardCommand}
	}
	path, err := os.Executable()
	if err != nil {
		return nil // plugins are then started directly, and stopped by this process alone
	}
	return []string{path, host.GuardCommand}
}

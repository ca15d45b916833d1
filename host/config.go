package host

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-multierror"

	"github.com/sox-host/sox-host/host/internal/store"
	"github.com/sox-host/sox-host/plugin/socket"
	"github.com/sox-host/sox-host/plugin/wire"
)

// The defaults of a Config, with what they are measured against.
const (
	// DefaultListWait is how long the first list waits for plugins that have no cached catalog and are
	// still starting. Many clients ignore list_changed, so the first list should be whole.
	DefaultListWait = 8 * time.Second
	// DefaultMaxOutputBytes is the longest line sent to a client: 9 MiB, because the TypeScript SDK's
	// reader ends at 10 MiB.
	DefaultMaxOutputBytes = 9 << 20
	// DefaultMaxNameLength is the longest exposed name: 46, what VS Code leaves of its limit of 64 after its
	// own prefix.
	DefaultMaxNameLength = 46
	// minNameLength leaves room for a cut name and its hash.
	minNameLength = 16
)

// WatchMode says what a running host does about changes in the plugins folder.
type WatchMode string

const (
	WatchNew WatchMode = "new" // start plugins that were not there before (the default)
	WatchAll WatchMode = "all" // also upgrade to newer versions as they appear
	WatchOff WatchMode = "off"
)

// Config says how a host runs. The zero value serves $SOX_HOME's plugins over the process's stdin and
// stdout. New copies it and fills in the defaults.
type Config struct {
	Home       string // everything sox-host owns; "" means $SOX_HOME, else ~/.sox
	PluginsDir string // "" means $SOX_PLUGINS_DIR, else HOME/plugins
	Plugin     string // serve exactly this plugin, with its own names; "" means all, with prefixed names

	// Absent is told to clients as instructions as long as there is no plugin to serve; "" tells them nothing. If the
	// plugins folder cannot be read, they are told that instead.
	Absent string

	In  io.Reader // lines from the client; nil means os.Stdin
	Out io.Writer // lines to the client; nil means os.Stdout. Nothing else is ever written to it

	Logger  hclog.Logger // nil means none
	Version string       // of the program, as clients are told; "" means "0.0.0"

	ClientProjectPath string // added to every tools/call as sox/client_context; "" adds nothing
	ReadOnly          bool   // refuse everything that is not known to be a read
	Watch             WatchMode

	// Attach names plugins that somebody else runs, by the sockets they listen on. The host connects to them, again and
	// again, and never starts or ends them. One of the same name in the folder is not used.
	Attach map[string]string

	ListWait       time.Duration // negative means no waiting; 0 means DefaultListWait
	DrainTimeout   time.Duration // 0 means each plugin's setting, else 30 s
	MaxLineBytes   int           // longest line from the client; 0 means 16 MiB
	MaxOutputBytes int           // longest line to the client; 0 means DefaultMaxOutputBytes
	MaxNameLength  int           // longest exposed name; 0 means DefaultMaxNameLength

	// Guard is the command line of the guard process that each plugin is started under, so that nothing
	// survives a host killed by SIGKILL; nil starts plugins directly.
	Guard []string
}

// withDefaults returns a copy with every default filled in, or all that is wrong with c.
func (c Config) withDefaults() (Config, error) {
	var errs *multierror.Error
	if c.Home == "" {
		home, err := store.DefaultHome()
		errs = multierror.Append(errs, err)
		c.Home = home
	}
	if c.PluginsDir == "" {
		c.PluginsDir = os.Getenv("SOX_PLUGINS_DIR")
	}
	if c.PluginsDir == "" {
		c.PluginsDir = filepath.Join(c.Home, "plugins")
	}
	for _, dir := range []*string{&c.Home, &c.PluginsDir} {
		abs, err := filepath.Abs(*dir)
		if err != nil {
			errs = multierror.Append(errs, err)
		}
		*dir = abs
	}
	if c.Plugin != "" && !store.ValidName(c.Plugin) {
		errs = multierror.Append(errs, fmt.Errorf("plugin name %q: want a lower-case letter, then up to 31 letters, digits or hyphens", c.Plugin))
	}
	attach := make(map[string]string, len(c.Attach))
	for name, path := range c.Attach {
		switch abs, err := filepath.Abs(path); {
		case !store.ValidName(name):
			errs = multierror.Append(errs, fmt.Errorf("attached plugin %q: want a lower-case letter, then up to 31 letters, digits or hyphens", name))
		case path == "":
			errs = multierror.Append(errs, fmt.Errorf("attached plugin %q: no socket", name))
		case c.Plugin != "" && c.Plugin != name:
			errs = multierror.Append(errs, fmt.Errorf("attached plugin %q: only %q is to be served", name, c.Plugin))
		case err != nil:
			errs = multierror.Append(errs, err)
		case len(abs) > socket.MaxPathBytes():
			errs = multierror.Append(errs, fmt.Errorf("attached plugin %q: %s: %w: %d bytes, this system takes %d", name, abs, socket.ErrPathTooLong, len(abs), socket.MaxPathBytes()))
		default:
			attach[name] = abs
		}
	}
	c.Attach = attach
	switch c.Watch {
	case "":
		c.Watch = WatchNew
	case WatchNew, WatchAll, WatchOff:
	default:
		errs = multierror.Append(errs, fmt.Errorf("watch mode %q: want new, all or off", c.Watch))
	}
	if c.In == nil {
		c.In = os.Stdin
	}
	if c.Out == nil {
		c.Out = os.Stdout
	}
	if c.Version == "" {
		c.Version = "0.0.0"
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	switch {
	case c.ListWait == 0:
		c.ListWait = DefaultListWait
	case c.ListWait < 0:
		c.ListWait = 0
	}
	if c.MaxLineBytes == 0 {
		c.MaxLineBytes = wire.DefaultMaxLineBytes
	}
	if c.MaxOutputBytes == 0 {
		c.MaxOutputBytes = DefaultMaxOutputBytes
	}
	if c.MaxNameLength == 0 {
		c.MaxNameLength = DefaultMaxNameLength
	}
	if c.MaxLineBytes < 0 || c.MaxOutputBytes < 0 || c.DrainTimeout < 0 {
		errs = multierror.Append(errs, errors.New("a size or time limit is negative"))
	}
	if c.MaxNameLength < minNameLength {
		errs = multierror.Append(errs, fmt.Errorf("max name length %d: want at least %d, to leave room for a hash", c.MaxNameLength, minNameLength))
	}
	if errs.ErrorOrNil() != nil {
		errs.ErrorFormat = func(all []error) string {
			texts := make([]string, len(all))
			for i, err := range all {
				texts[i] = err.Error()
			}
			return strings.Join(texts, "; ")
		}
		return c, fmt.Errorf("%w: %w", ErrUsage, errs)
	}
	return c, nil
}

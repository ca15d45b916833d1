package process

import (
	"fmt"
	"strings"
)

// PluginFD is the descriptor on which a plugin finds its end of the
// socketpair. SOX_PLUGIN_FD announces it.
const PluginFD = 3

// InstanceVariable is the one variable that Start adds to Spec.Env. Its value
// is different for every start and cannot be guessed, so a process that has it
// in its environment was started by this host, for this plugin.
const InstanceVariable = "SOX_PLUGIN_INSTANCE"

// Transport says how the host and the child talk.
type Transport int

const (
	// Socketpair gives the child one end of an unnamed Unix socketpair as
	// descriptor 3. Its stdin is the null device, stdout and stderr are
	// captured.
	Socketpair Transport = iota
	// Stdio makes the child's stdin and stdout the connection, as servers
	// expect that were not written for this host. Only stderr is captured.
	Stdio
)

// String returns "socketpair" or "stdio".
func (t Transport) String() string {
	switch t {
	case Socketpair:
		return "socketpair"
	case Stdio:
		return "stdio"
	default:
		return fmt.Sprintf("transport(%d)", int(t))
	}
}

// Spec says what to start. Start does not keep or change its slices.
type Spec struct {
	// Plugin, Version and Generation name the child in logs and errors.
	Plugin     string
	Version    string
	Generation uint64

	// Path is the absolute path of the program, and its argv[0].
	Path string
	// Args are the arguments after argv[0]. They reach the child as they are;
	// there is no shell.
	Args []string
	// Dir is the child's working folder; empty means the host's own.
	Dir string
	// Env is the child's environment, KEY=value. InstanceVariable is added.
	Env []string

	Transport Transport

	// Output is called with each line the child prints, from one goroutine per
	// stream, so two calls may overlap. It must not block for long: while it
	// does, the child's pipe fills. It may be nil.
	Output func(Line)
}

// maxExecBytes is more than any kernel here accepts as arguments and
// environment (Linux: 6 MiB, macOS: 1 MiB). What is longer is not even tried,
// because a guard would have to read it first.
const maxExecBytes = 8 << 20

// validate refuses what no exec could carry out.
func (s Spec) validate() error {
	size := 0
	if s.Transport != Socketpair && s.Transport != Stdio {
		return fmt.Errorf("unknown transport %d", int(s.Transport))
	}
	for _, text := range append(append([]string{s.Path, s.Dir}, s.Args...), s.Env...) {
		if strings.ContainsRune(text, 0) {
			return fmt.Errorf("a NUL byte in the path, the folder, an argument or a variable")
		}
		if size += len(text) + 1; size > maxExecBytes {
			return fmt.Errorf("arguments and environment are too long together: over %d bytes", maxExecBytes)
		}
	}
	return nil
}

// label names the child for people: "notes@1.3.0".
func (s Spec) label() string {
	if s.Version == "" {
		return s.Plugin
	}
	return s.Plugin + "@" + s.Version
}

// Stream is one of the two captured outputs.
type Stream int

const (
	// Stdout is the child's standard output.
	Stdout Stream = 1
	// Stderr is the child's standard error.
	Stderr Stream = 2
)

// String returns "stdout" or "stderr".
func (s Stream) String() string {
	if s == Stdout {
		return "stdout"
	}
	return "stderr"
}

// Line is one line that a child printed, or a report of lines that were
// dropped.
type Line struct {
	Stream Stream
	// Text is the line without its end of line. The bytes are the child's:
	// anything but a line feed may be in them, so they go through Sanitize
	// before they reach a log or a terminal. Valid only during the call.
	Text []byte
	// Cut is how many bytes of an overlong line are missing after Text.
	Cut int
	// Dropped is how many lines were left out since the last report because
	// the child printed more than MaxOutputRate. When it is not zero the line
	// is that report: Text is a sentence by the host, not the child's.
	Dropped int
	// DroppedBytes is the size of those lines.
	DroppedBytes int64
}

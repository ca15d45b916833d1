package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Protocol is the number of the protocol this package implements.
const Protocol = 1

// The environment that tells a plugin how it was started. Without any of the first three it was started by
// hand.
const (
	EnvFD        = "SOX_PLUGIN_FD"        // number of a connected stream socket, 3
	EnvSocket    = "SOX_PLUGIN_SOCKET"    // path of a Unix socket to listen on
	EnvListenFD  = "SOX_PLUGIN_LISTEN_FD" // number of a bound, listening socket
	EnvProtocols = "SOX_PLUGIN_PROTOCOLS" // protocols the host speaks, "MIN-MAX"
	EnvName      = "SOX_PLUGIN_NAME"      // the plugin's name by its file
	EnvLockFD    = "SOX_PLUGIN_LOCK_FD"   // number of a descriptor that holds the life lock of EnvSocket
	EnvIdleMS    = "SOX_PLUGIN_IDLE_MS"   // end after so many milliseconds without work
)

// The methods of the protocol itself. No plugin may declare a method under "sox/".
const (
	MethodReady        = "sox/ready"         // notification, plugin → host, first frame
	MethodBye          = "sox/bye"           // notification, plugin → host, last frame
	MethodSessionOpen  = "sox/session.open"  // request, host → plugin
	MethodSessionClose = "sox/session.close" // notification, host → plugin
	MethodHealth       = "sox/health"        // request, host → plugin
	MethodSnapshot     = "sox/snapshot"      // request, host → plugin
	MethodRestore      = "sox/restore"       // request, host → plugin
	MethodShutdown     = "sox/shutdown"      // notification, host → plugin
	MethodCancel       = "$/cancelRequest"   // notification {"id":ID}, for methods outside MCP
	MethodProgress     = "$/progress"        // notification {"id":ID,"value":…}, for methods outside MCP
)

// ProtocolRange is an inclusive range of protocol numbers.
type ProtocolRange struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

func (r ProtocolRange) String() string { return fmt.Sprintf("%d-%d", r.Min, r.Max) }

// Contains reports whether protocol n is in the range.
func (r ProtocolRange) Contains(n int) bool { return r.Min <= n && n <= r.Max }

// ParseProtocolRange reads the value of EnvProtocols: "MIN-MAX", or one number.
func ParseProtocolRange(s string) (ProtocolRange, error) {
	low, high, both := strings.Cut(s, "-")
	if !both {
		high = low
	}
	minimum, err := strconv.ParseUint(low, 10, 31)
	maximum, err2 := strconv.ParseUint(high, 10, 31)
	if err != nil || err2 != nil || minimum > maximum {
		return ProtocolRange{}, fmt.Errorf("protocol range %q is not MIN-MAX", clip(s))
	}
	return ProtocolRange{Min: int(minimum), Max: int(maximum)}, nil
}

// Ready is the params of sox/ready.
type Ready struct {
	Protocol     ProtocolRange `json:"protocol"`
	Name         string        `json:"name"`
	Version      string        `json:"version"`
	MCP          []string      `json:"mcp,omitempty"`     // MCP revisions served; none = not an MCP server
	Methods      []string      `json:"methods,omitempty"` // other JSON-RPC methods served, "notes.*" or exact
	Capabilities Capabilities  `json:"capabilities"`
	ReadOnly     bool          `json:"read_only,omitempty"`
	Limits       Limits        `json:"limits"`
}

// Capabilities are the optional parts of protocol 1 that a plugin serves.
type Capabilities struct {
	Ack       bool `json:"ack,omitempty"`       // answers "ack":true before a handler starts
	Cancel    bool `json:"cancel,omitempty"`    // stops work when a request is cancelled
	Health    bool `json:"health,omitempty"`    // answers sox/health
	Snapshot  bool `json:"snapshot,omitempty"`  // answers sox/snapshot and sox/restore
	Exclusive bool `json:"exclusive,omitempty"` // must not run beside another instance of itself
	Serial    bool `json:"serial,omitempty"`    // wants one request at a time
}

// Limits are a plugin's own bounds; 0 means that it states none.
type Limits struct {
	Concurrency      int   `json:"concurrency,omitempty"`        // requests running at once
	Queue            int   `json:"queue,omitempty"`              // further requests accepted
	RequestBytes     int   `json:"request_bytes,omitempty"`      // largest request frame
	ResponseBytes    int   `json:"response_bytes,omitempty"`     // largest response frame
	DefaultTimeoutMS int64 `json:"default_timeout_ms,omitempty"` // deadline of a request that names none
	MaxTimeoutMS     int64 `json:"max_timeout_ms,omitempty"`     // longest deadline a request may ask for
}

// Append appends r as encoding/json would. It is written out because that package spends on its first value as much time as all of a plugin's start
// may take.
func (r *Ready) Append(dst []byte) []byte {
	dst = append(dst, `{"protocol":{"min":`...)
	dst = strconv.AppendInt(dst, int64(r.Protocol.Min), 10)
	dst = append(dst, `,"max":`...)
	dst = strconv.AppendInt(dst, int64(r.Protocol.Max), 10)
	dst = AppendQuote(append(dst, `},"name":`...), r.Name)
	dst = AppendQuote(append(dst, `,"version":`...), r.Version)
	dst = appendStrings(dst, `,"mcp":`, r.MCP)
	dst = appendStrings(dst, `,"methods":`, r.Methods)
	dst = append(dst, `,"capabilities":{`...)
	start := len(dst)
	for _, c := range []struct {
		name string
		on   bool
	}{
		{`"ack":true`, r.Capabilities.Ack},
		{`"cancel":true`, r.Capabilities.Cancel},
		{`"health":true`, r.Capabilities.Health},
		{`"snapshot":true`, r.Capabilities.Snapshot},
		{`"exclusive":true`, r.Capabilities.Exclusive},
		{`"serial":true`, r.Capabilities.Serial},
	} {
		if c.on {
			dst = append(comma(dst, start), c.name...)
		}
	}
	dst = append(dst, '}')
	if r.ReadOnly {
		dst = append(dst, `,"read_only":true`...)
	}
	dst = append(dst, `,"limits":{`...)
	start = len(dst)
	for _, l := range r.Limits.named() {
		if l.value != 0 {
			dst = append(comma(dst, start), '"')
			dst = append(append(dst, l.name...), `":`...)
			dst = strconv.AppendInt(dst, l.value, 10)
		}
	}
	return append(dst, `}}`...)
}

// comma separates what is appended from what was since start.
func comma(dst []byte, start int) []byte {
	if len(dst) > start {
		dst = append(dst, ',')
	}
	return dst
}

func appendStrings(dst []byte, name string, values []string) []byte {
	if len(values) == 0 {
		return dst
	}
	dst = append(append(dst, name...), '[')
	start := len(dst)
	for _, v := range values {
		dst = AppendQuote(comma(dst, start), v)
	}
	return append(dst, ']')
}

// HandshakeError says at which step a new connection failed.
type HandshakeError struct {
	Plugin  string
	Version string
	Stage   string // "ready", "session.open", "initialize", ...
	Err     error
}

func (e *HandshakeError) Error() string {
	return fmt.Sprintf("handshake with %s %s: %s: %v", e.Plugin, e.Version, e.Stage, e.Err)
}

func (e *HandshakeError) Unwrap() error { return e.Err }

// ErrNotReady reports a first frame that is not sox/ready.
var ErrNotReady = errors.New("the first frame is not sox/ready")

// ParseReady reads the first frame of a plugin. Unknown members are ignored, so that protocol 1 can grow. A
// leading v of the version is dropped. Check says whether the values may be used.
func ParseReady(env *Envelope) (Ready, error) {
	if env.Kind != Notification || string(env.Method()) != MethodReady {
		return Ready{}, ErrNotReady
	}
	if p := env.Params(); len(p) == 0 || p[0] != '{' {
		return Ready{}, errors.New("params of sox/ready: not an object")
	}
	var r Ready
	if err := json.Unmarshal(env.Params(), &r); err != nil {
		return Ready{}, fmt.Errorf("params of sox/ready: %w", describe(err))
	}
	r.Version = strings.TrimPrefix(r.Version, "v")
	return r, nil
}

// describe says which member has the wrong type, without quoting the value.
func describe(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Errorf("%q is not of type %s", wrong.Field, wrong.Type)
	}
	return errors.New("malformed")
}

// Check compares a ready frame with what the file name promised. An error names what the author or the owner
// of the file has to change.
func (r Ready) Check(name, version string) error {
	switch {
	case r.Protocol.Min < 1 || r.Protocol.Min > r.Protocol.Max:
		return fmt.Errorf("the plugin states no protocol range: sox/ready needs \"protocol\":{\"min\":%d,\"max\":%d}", Protocol, Protocol)
	case !r.Protocol.Contains(Protocol):
		return fmt.Errorf("the plugin speaks protocol %s, this host speaks %d: rebuild it with an SDK of this host's release", r.Protocol, Protocol)
	case r.Name != name:
		return fmt.Errorf("the plugin calls itself %q but its file is named %q: rename the file or the plugin", clip(r.Name), name)
	case r.Version != version:
		// A build of before under a new name is by far the commonest. Whether the file stays is for the command to say.
		return fmt.Errorf("the plugin says version %q but its file says %q: most likely it was not rebuilt. Build it as %s (in Go: where its source says the version, or if that is a variable by -ldflags \"-X main.version=%s\") and install it again, or install it as the version it says",
			clip(r.Version), version, version, version)
	}
	for _, revision := range r.MCP {
		if revision == "" {
			return errors.New("the plugin declares an empty MCP revision")
		}
	}
	for _, pattern := range r.Methods {
		if fault := checkPattern(pattern); fault != "" {
			return fmt.Errorf("the plugin declares the method %q, which %s", clip(pattern), fault)
		}
	}
	return r.Limits.check()
}

// clip shortens text of a peer for an error: 64 characters hold every name and version that is allowed.
func clip(s string) string {
	if len(s) <= 64 {
		return s
	}
	return strings.ToValidUTF8(s[:64], "") + "…"
}

// reserved are the prefixes under which no plugin may declare a method, beside those of MCP. JSON-RPC 2.0 §4 keeps
// "rpc." for itself.
var reserved = []string{"sox/", "$/", "rpc."}

// checkPattern says what is wrong with a declared method, or nothing. A pattern must not cover any reserved
// method, so "too*" is refused like "tools/*".
func checkPattern(pattern string) string {
	prefix, open := strings.CutSuffix(pattern, "*")
	switch {
	case prefix == "":
		return "names no method of its own"
	case strings.Contains(prefix, "*"):
		return "has a * before its end"
	}
	taken := func(r string) bool { return covers(r, prefix) || open && strings.HasPrefix(r, prefix) }
	if slices.ContainsFunc(reserved, taken) || slices.ContainsFunc(mcpMethods, taken) {
		return "is reserved"
	}
	return ""
}

// covers reports whether a reserved name, or prefix that ends in a separator, covers method.
func covers(reserved, method string) bool {
	if last := reserved[len(reserved)-1]; last == '/' || last == '.' {
		return strings.HasPrefix(method, reserved)
	}
	return method == reserved
}

// namedLimit is one limit with its name on the wire.
type namedLimit struct {
	name  string
	value int64
}

func (l Limits) named() [6]namedLimit {
	return [...]namedLimit{
		{"concurrency", int64(l.Concurrency)},
		{"queue", int64(l.Queue)},
		{"request_bytes", int64(l.RequestBytes)},
		{"response_bytes", int64(l.ResponseBytes)},
		{"default_timeout_ms", l.DefaultTimeoutMS},
		{"max_timeout_ms", l.MaxTimeoutMS},
	}
}

// check refuses negative limits.
func (l Limits) check() error {
	for _, limit := range l.named() {
		if limit.value < 0 {
			return fmt.Errorf("the plugin states a negative limit: %s is %d", limit.name, limit.value)
		}
	}
	return nil
}

// Serves reports whether a declared pattern ("notes.*" or an exact name) covers method.
func (r Ready) Serves(method string) bool {
	return slices.ContainsFunc(r.Methods, func(pattern string) bool { return MatchMethod(pattern, method) })
}

// MatchMethod reports whether pattern, exact or ending in "*", covers method.
func MatchMethod(pattern, method string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(method, prefix)
	}
	return pattern == method
}

// mcpMethods are the methods of MCP, in any revision: whole names, and prefixes that end in a slash.
var mcpMethods = []string{
	"initialize", "ping", "server/", "tools/", "prompts/", "resources/", "completion/", "logging/",
	"notifications/", "subscriptions/", "sampling/", "elicitation/", "roots/", "tasks/",
}

// IsMCPMethod reports whether a method belongs to MCP, in any revision.
func IsMCPMethod(method string) bool {
	return slices.ContainsFunc(mcpMethods, func(m string) bool { return covers(m, method) })
}

// SessionOpen is the params of sox/session.open.
type SessionOpen struct {
	Session uint64          `json:"session"`
	MCP     *string         `json:"mcp"`               // MCP revision, or null for plain JSON-RPC
	Client  json.RawMessage `json:"client,omitempty"`  // the client's clientInfo, if it gave one
	Context json.RawMessage `json:"context,omitempty"` // client context: {"project_path":…}
}

// SessionClose is the params of sox/session.close.
type SessionClose struct {
	Session uint64 `json:"session"`
}

package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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

// ParseReady reads the first frame of a plugin. Unknown members are ignored, so that protocol 1 can grow.
func ParseReady(env *Envelope) (Ready, error) {
	if env.Kind != Notification || string(env.Method()) != MethodReady {
		return Ready{}, ErrNotReady
	}
	var r Ready
	if err := json.Unmarshal(env.Params(), &r); err != nil {
		return Ready{}, fmt.Errorf("params of sox/ready: %w", err)
	}
	return r, nil
}

// Check compares a ready frame with what the file name promised.
func (r Ready) Check(name, version string) error {
	switch {
	case r.Protocol.Min > Protocol || r.Protocol.Max < Protocol:
		return fmt.Errorf("the plugin speaks protocol %s, this host speaks %d: rebuild it with an SDK of this host's release", r.Protocol, Protocol)
	case r.Name != name:
		return fmt.Errorf("the plugin calls itself %q but its file is named %q: rename the file or the plugin", r.Name, name)
	case r.Version != version:
		return fmt.Errorf("the plugin says version %q but its file says %q: rename the file or set the version in the code", r.Version, version)
	}
	for _, m := range r.Methods {
		if strings.HasPrefix(m, "sox/") || strings.HasPrefix(m, "$/") || m == "" || m == "*" || IsMCPMethod(strings.TrimSuffix(m, "*")) {
			return fmt.Errorf("the plugin declares the method %q, which is reserved", m)
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

// IsMCPMethod reports whether a method belongs to MCP, in any revision.
func IsMCPMethod(method string) bool {
	switch method {
	case "initialize", "ping":
		return true
	}
	for _, prefix := range []string{"server/", "tools/", "prompts/", "resources/", "completion/", "logging/", "notifications/", "subscriptions/", "sampling/", "elicitation/", "roots/", "tasks/"} {
		if strings.HasPrefix(method, prefix) {
			return true
		}
	}
	return false
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

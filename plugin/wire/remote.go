package wire

import (
	"fmt"
	"slices"
	"strings"
)

// The environment that tells sox-remote which server it stands for. A host sets it from a manifest with a "url"; a
// client that starts sox-remote by itself sets it too. "${NAME}" in a url or in the value of a header stands for
// another variable, so that a secret need not be in a manifest.
const (
	EnvRemoteURL         = "SOX_REMOTE_URL"          // http or https
	EnvRemoteTransport   = "SOX_REMOTE_TRANSPORT"    // RemoteHTTP, which is also meant by "", or RemoteSSE
	EnvRemoteHeaders     = "SOX_REMOTE_HEADERS"      // a JSON object: name to value; "" = none
	EnvRemoteHeadersFile = "SOX_REMOTE_HEADERS_FILE" // path of a file with the same, for its owner alone; "" = none
)

// The ways to reach a server behind a url.
const (
	RemoteHTTP = "http" // Streamable HTTP, MCP since 2025-03-26
	RemoteSSE  = "sse"  // HTTP+SSE, MCP 2024-11-05
)

// reservedHeaders are what the transport itself sets, in lower case: another value would break it. With one of the
// idempotency keys Go's HTTP client would send a POST twice.
var reservedHeaders = []string{
	"accept", "connection", "content-length", "content-type", "host", "idempotency-key", "last-event-id", "mcp-method",
	"mcp-name", "mcp-protocol-version", "mcp-session-id", "transfer-encoding", "upgrade", "x-idempotency-key",
}

// CheckRemoteHeader says what keeps a header from being sent to a remote server. It never quotes the value.
func CheckRemoteHeader(name, value string) error {
	const token = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" // RFC 9110 §5.6.2
	if name == "" || strings.Trim(name, token) != "" {
		return fmt.Errorf("%.40q is no name of a header: use letters, digits and hyphens", name)
	}
	if slices.Contains(reservedHeaders, strings.ToLower(name)) {
		return fmt.Errorf("the header %s belongs to the transport itself: take it out", name)
	}
	for _, c := range []byte(value) {
		if c < ' ' && c != '\t' || c == 0x7f {
			return fmt.Errorf("the value of the header %s has a control character in it, such as a line end: take it out", name)
		}
	}
	return nil
}

package sdk_test

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/sox-host/sox-host/plugin/wire"
	"github.com/sox-host/sox-host/sdk/sdktest"
)

// Whatever a host writes, the plugin neither crashes nor hangs, and every frame it writes is an envelope. Input is
// frames, one a line, and behind a zero byte raw bytes.
func FuzzServeConn(f *testing.F) {
	for _, raw := range sdktest.Hostile() {
		f.Add(append([]byte{0}, raw...))
	}
	for _, lines := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"sox/session.open","params":{"session":1,"mcp":"2025-11-25","client":{"name":"x"},"context":{"project_path":"/p"}}}` + "\n" +
			`{"jsonrpc":"2.0","id":2,"session":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}` + "\n" +
			`{"jsonrpc":"2.0","id":3,"session":1,"ack":true,"timeout_ms":1,"method":"tools/call","params":{"name":"block","_meta":{"progressToken":1}}}` + "\n" +
			`{"jsonrpc":"2.0","session":1,"method":"notifications/cancelled","params":{"requestId":3}}` + "\n" +
			`{"jsonrpc":"2.0","method":"sox/session.close","params":{"session":1}}` + "\n" +
			`{"jsonrpc":"2.0","method":"sox/shutdown"}`,
		`{"jsonrpc":"2.0","id":1,"method":"sox/session.open","params":[]}`,
		`{"jsonrpc":"2.0","id":1,"method":"sox/restore","params":{"state":1}}`,
		`{"jsonrpc":"2.0","id":"a","method":"echo.say","params":{"text":{"text":[]}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":7}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
	} {
		f.Add([]byte(lines))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		p := newEcho(t)
		p.SetLogOutput(io.Discard)
		ours, theirs := net.Pipe()
		ended := make(chan struct{})
		go func() { // ends when the connection does
			defer close(ended)
			_ = p.ServeConn(t.Context(), theirs)
		}()
		read := make(chan struct{})
		go func() { // likewise
			defer close(read)
			frames := wire.NewFrameReader(ours, 0)
			for {
				body, err := frames.Next()
				if err != nil {
					return
				}
				var env wire.Envelope
				if err := wire.Scan(body, &env); err != nil {
					t.Errorf("the plugin wrote %q: %v", body, err)
				}
			}
		}()
		lines, raw, _ := bytes.Cut(input, []byte{0})
		var out []byte
		for line := range bytes.SplitSeq(lines, []byte{'\n'}) {
			if len(line) > 0 {
				out = wire.AppendFrame(out, line)
			}
		}
		_, _ = ours.Write(append(out, raw...)) // the plugin may hang up at any point
		ours.Close()
		<-ended
		<-read
	})
}

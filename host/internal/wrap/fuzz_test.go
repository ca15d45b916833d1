package wrap

import (
	"bytes"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/sox-host/sox-host/host/internal/pace"
	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// fuzzLine is the limit of the lines in FuzzLines, in bytes.
const fuzzLine = 512

// sink is a receiver that checks what it is told.
type sink struct {
	t      *testing.T
	last   string
	told   int
	failed int
}

func (s *sink) message(_ *child, env *wire.Envelope) {
	s.told++
	s.last = string(env.Raw)
	var again wire.Envelope
	if err := wire.Scan(env.Raw, &again); err != nil || again.Kind != env.Kind || env.Kind == wire.Ack || env.Kind == wire.Invalid {
		s.t.Errorf("passed on %q as a %v: %v", env.Raw, env.Kind, err)
	}
	if len(env.Raw) > fuzzLine {
		s.t.Errorf("passed on %d bytes", len(env.Raw))
	}
}

func (s *sink) unusable(_ *child, id []byte, e *wire.Error) {
	s.failed++
	if !wire.ValidID(id) || e.Code == 0 || e.Message == "" {
		s.t.Errorf("the answer to %q failed with %v", id, e)
	}
}

// FuzzLines gives a server's stdout any bytes, in pieces of any size. What is passed on is a message of JSON-RPC, what
// is not goes to the log, and a message on a line of its own behind it all arrives.
func FuzzLines(f *testing.F) {
	const good = `{"jsonrpc":"2.0","id":7,"result":{"good":true}}`
	for _, seed := range []string{
		"", "banner", good, good + good, "  " + good + "\r", "[" + good + "," + good + "]", "[[]]", `{"a" {"b":1} {` + good,
		`{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`, `{"id":1,"result":{}}`, `{"ack":7}`, `{"jsonrpc":"2.0","id":null,"method":"m"}`,
		"\xff\xfe\x00\x1b[31m", "\ufeff" + good, "a\u2028b\u0085c", strings.Repeat("x", fuzzLine) + good, strings.Repeat(`{"`, fuzzLine/2),
		`{"jsonrpc":"2.0","id":5,"result":"` + strings.Repeat("y", fuzzLine), "\n\n \r\n", "Content-Length: 3\r\n\r\n" + good, "{\n \"jsonrpc\": \"2.0\"\n}",
	} {
		f.Add([]byte(seed), uint8(3))
	}
	f.Fuzz(func(t *testing.T, text []byte, piece uint8) {
		out := newOutput()
		read := io.Reader(bytes.NewReader(append(append(text[:len(text):len(text)], '\n'), good+"\n"...)))
		if piece > 0 {
			read = pieces{read, int(piece)}
		}
		never := pace.New(math.MaxInt32, 1, 0) // waits
		c := &child{stdout: io.NopCloser(read), limit: fuzzLine, junk: junk{output: out.add}, junkPace: never, noticePace: never}
		s := &sink{t: t}
		c.read(s)
		c.junk.end()
		if s.last != good {
			t.Errorf("the last message is %q", s.last)
		}
		logged := 0
		for _, l := range out.lines {
			logged += len(l.Text)
			if l.Stream != process.Stdout || bytes.IndexByte(l.Text, '\n') >= 0 || len(l.Text) > process.MaxLineBytes {
				t.Errorf("logged %q", l.Text)
			}
		}
		if words := bytes.Fields(bytes.ReplaceAll(text, []byte("\ufeff"), nil)); len(words) > 0 && s.told+s.failed+logged == 1 {
			t.Errorf("%q left no trace", text)
		}
	})
}

// pieces reads up to so many bytes at once.
type pieces struct {
	r    io.Reader
	size int
}

func (p pieces) Read(b []byte) (int, error) { return p.r.Read(b[:min(len(b), p.size)]) }

// FuzzServer lets a server of either era say anything to a client of either while a request is open. The connection to
// the host holds, requests are answered, and the server is usable afterwards.
func FuzzServer(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":2,"result":{"resultType":"task"}}`,
		`{"jsonrpc":"2.0","id":2,"result":[]}`,
		`{"jsonrpc":"2.0","id":2,"error":{"code":-32022,"message":5}}`,
		`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}` + "\n" + `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q"}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4503599627370497}}`,
		`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"resourceSubscriptions":["a",7]},"_meta":{"io.modelcontextprotocol/subscriptionId":4503599627370497}}}`,
		`{"jsonrpc":"2.0","id":4503599627370497,"error":{}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2}}`,
		`{"jsonrpc":"2.0","method":"sox/ready","params":{}}` + "\n" + `{"jsonrpc":"2.0","id":1,"method":"sox/session.open","session":9}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n" + `[{"jsonrpc":"2.0","id":1,"method":"roots/list"},{"jsonrpc":"2.0","id":1,"method":"roots/list"}]`,
	} {
		for way := range uint8(4) {
			f.Add([]byte(seed), way)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, way uint8) {
		era, revision, meta := Legacy, wire.RevisionLegacy, ""
		if way&1 != 0 {
			era = ModernOnly
		}
		if way&2 != 0 {
			revision, meta = wire.RevisionModern, modernMeta+","
		}
		server := fakes(func(p *fake) int {
			p.each(func(m message) {
				switch {
				case m.Method == "tools/call":
					_, _ = p.outW.Write(append(text[:len(text):len(text)], '\n'))
					p.say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, m.ID)
				case m.Method == "tools/list":
					p.say(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[]}}`, m.ID)
				case era == Legacy && legacy(m, p.say), era != Legacy && modern(m, p.say):
				}
			})
			return 0
		})
		b := Launch(Config{Start: server.start, Spec: process.Spec{Plugin: "kit", Version: "1.2.3"}, Eras: &eraMemory{era: era}, MaxFrameBytes: 4096})
		conn := rpc.NewConn(b.Conn(), rpc.Options{MaxFrameBytes: 4096, Serve: func(c *rpc.Conn, env *wire.Envelope) {
			if env.Kind == wire.Request && env.Session() != 1 {
				t.Errorf("asked outside of the session: %s", env.Raw)
			}
		}})
		ran := make(chan error, 1)
		go func() { ran <- conn.Run() }()
		r := &rig{t: t, b: b, conn: conn, from: make(chan message), ran: ran}
		r.open(1, revision)
		if way&2 == 0 {
			r.must(1, "initialize", initParams)
			r.notify(1, "notifications/initialized", "{}")
		} else {
			r.must(1, "server/discover", "{"+modernMeta+"}")
		}
		_, first := r.start(1, "tools/call", "{"+meta+`"name":"a"}`)
		await(t, "the answer to the first request", first)
		// What the server says may answer the next requests too, if it answered the first. Each of its answers does so once.
		useful := false
		for range bytes.Count(text, []byte(`"id"`)) + 2 {
			got, err := r.request(1, "tools/list", "{"+meta+`"cursor":"a"}`)
			if useful = err == nil && member(got, "tools") == "[]"; useful {
				break
			}
		}
		if !useful {
			t.Error("the server is of no use any more")
		}
		_ = conn.Close()
		<-b.Exited()
		if err := <-ran; err != rpc.ErrClosed {
			t.Errorf("the connection ended with %v", err)
		}
		b.Stop(afterCrash)
	})
}

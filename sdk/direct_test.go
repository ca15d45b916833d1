package sdk_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
	"github.com/sox-host/sox-host/sdk"
	"github.com/sox-host/sox-host/sdk/sdktest"
)

// dialog sends lines to a plugin started by hand, ends its input, and returns the lines it answered, sorted.
func dialog(t *testing.T, p *sdk.Plugin, lines ...string) []string {
	t.Helper()
	var out syncBuffer
	if err := p.ServeLines(t.Context(), strings.NewReader(strings.Join(lines, "\n")), &out); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSuffix(line, "\n")
		var env wire.Envelope
		if err := wire.Scan([]byte(line), &env); err != nil {
			t.Errorf("not an envelope: %q", line)
		}
		got = append(got, line)
	}
	slices.Sort(got)
	return got
}

func TestByHandItIsAnMCPServerAndServesMethods(t *testing.T) {
	got := dialog(t, newEcho(t, sdk.WithInstructions("Talk.")),
		`{"jsonrpc":"2.0","id":"a","method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		``,
		`{"jsonrpc":"2.0","id":1.50,"method":"echo.say","params":{"text":"hi"}}`+"\r",
		`{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`,
	)
	want := []string{
		`{"jsonrpc":"2.0","id":"a","result":{"capabilities":{"logging":{},"tools":{}},"instructions":"Talk.","protocolVersion":"2024-11-05","serverInfo":{"name":"echo","version":"1.0.0"}}}`,
		`{"jsonrpc":"2.0","id":1.50,"result":{"text":"hi"}}`,
		`{"jsonrpc":"2.0","id":9007199254740993,"result":{}}`,
	}
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestByHandBadLinesEndNothing(t *testing.T) {
	got := dialog(t, newEcho(t),
		`hello`,
		`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`,
		`{"jsonrpc":"2.0","id":null,"method":"ping"}`,
		`{"ack":1}`,
		`{"jsonrpc":"2.0","method":"sox/shutdown"}`,
		`{"jsonrpc":"2.0","id":2,"method":"sox/session.open","params":{"session":1,"mcp":null}}`,
		`{"id":3,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":4,"method":"ping"}`,
	)
	var codes []string
	for _, line := range got {
		id, code := wire.Member([]byte(line), "id"), wire.Member(wire.Member([]byte(line), "error"), "code")
		codes = append(codes, string(id)+":"+string(code))
	}
	if want := []string{"2:-32601", "3:-32600", "4:"}; !slices.Equal(codes, want) {
		t.Errorf("answers %v, want %v", codes, want)
	}
}

func TestByHandALineOverTheLimitIsAnsweredByItsID(t *testing.T) {
	got := dialog(t, newEcho(t),
		`{"jsonrpc":"2.0","id":1,"method":"echo.say","params":{"text":"`+strings.Repeat("x", wire.DefaultMaxLineBytes)+`"}}`,
		`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	if len(got) != 2 || !strings.Contains(got[0], `"id":1,"error":{"code":-32700`) || got[1] != `{"jsonrpc":"2.0","id":2,"result":{}}` {
		t.Errorf("got %.300q", got)
	}
}

func TestByHandACancelledMCPRequestGetsNoAnswer(t *testing.T) {
	rw := sdktest.Lines(t, newEcho(t))
	go io.WriteString(rw, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"block","arguments":{}}}
{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}
{"jsonrpc":"2.0","id":2,"method":"echo.block"}
{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":2}}
`)
	in := bufio.NewReader(rw)
	line, err := in.ReadString('\n')
	if err != nil || !strings.Contains(line, `"id":2,"error":{"code":-32008`) {
		t.Errorf("got %q, %v", line, err)
	}
}

func TestByHandTheEndOfInputWaitsForOpenAnswersAndNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sdk.New("slow", "1.0.0", sdk.WithLimits(sdk.Limits{Concurrency: 1}))
		p.SetLogOutput(testLog{t})
		sdk.Method(p, "slow", func(context.Context, empty) (empty, error) { pass(300 * time.Millisecond); return empty{}, nil })
		sdk.Method(p, "hang", block)
		begin := time.Now()
		got := dialog(t, p,
			`{"jsonrpc":"2.0","id":1,"method":"slow"}`,
			`{"jsonrpc":"2.0","id":2,"method":"slow"}`,
			`{"jsonrpc":"2.0","id":3,"method":"hang"}`)
		if len(got) != 3 || !strings.Contains(got[0], `"id":1,"result"`) || !strings.Contains(got[1], `"id":2,"result"`) || !strings.Contains(got[2], `"id":3,"error":{"code":-32003`) {
			t.Errorf("got %q", got)
		}
		if d := time.Since(begin); d > 1500*time.Millisecond {
			t.Errorf("took %v", d)
		}
	})
}

func TestByHandABrokenOutputEndsIt(t *testing.T) {
	p := newEcho(t)
	in, feed := io.Pipe()
	defer feed.Close()
	ended := make(chan error, 1)
	go func() { ended <- p.ServeLines(t.Context(), in, brokenWriter{}) }()
	if _, err := io.WriteString(feed, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("ended with %v", err)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

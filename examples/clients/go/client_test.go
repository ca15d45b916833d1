package client

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// children are what the test binary does when it is started as a child, by name.
var children = map[string]func(){
	"silent":   func() { <-time.After(time.Hour) },
	"not_json": func() { answer("hello") },
	"array":    func() { answer(`[{"jsonrpc":"2.0","id":1,"result":1}]`) },
	"two_ends": func() { answer(`{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":"m"}}`) },
	"no_end":   func() { answer(`{"jsonrpc":"2.0","id":1}`) },
	"new_id":   func() { answer(`{"jsonrpc":"2.0","id":2,"result":1}`) },
	"text_id":  func() { answer(`{"jsonrpc":"2.0","id":"1","result":1}`) },
	"not_utf8": func() { answer("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xff\"}") },
	"old":      func() { answer(`{"jsonrpc":"1.0","id":1,"result":1}`) },
	"endless":  func() { answer(strings.Repeat("x", 1<<20)) },
	"gone":     func() {},
	"good": func() {
		answer(`{"jsonrpc":"2.0","method":"note"}` + "\n\r\n" + `{"result":null,"id":1,"jsonrpc":"2.0"}`)
	},
}

// answer waits for one line and writes one, and ends with its input.
func answer(line string) {
	buf := make([]byte, 4096)
	if _, err := os.Stdin.Read(buf); err != nil {
		return
	}
	os.Stdout.WriteString(line + "\n")
	_, _ = os.Stdin.Read(buf)
}

func TestMain(m *testing.M) {
	if child := children[os.Getenv("CHILD")]; child != nil {
		child()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(t *testing.T, name string, o Options) *Client {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o.Env = append(os.Environ(), "CHILD="+name)
	o.Stderr = t.Output()
	c, err := Start([]string{self}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A child that breaks the protocol ends the connection, whatever it breaks.
func TestBadAnswers(t *testing.T) {
	for _, name := range []string{"not_json", "array", "two_ends", "no_end", "new_id", "text_id", "not_utf8", "old", "endless", "gone"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := child(t, name, Options{MaxLineBytes: 64 << 10})
			if _, err := c.Call(t.Context(), "x", nil); !errors.Is(err, ErrClosed) {
				t.Errorf("%v, want ErrClosed", err)
			}
			if _, err := c.Call(t.Context(), "x", nil); !errors.Is(err, ErrClosed) {
				t.Errorf("the next call: %v, want ErrClosed", err)
			}
			if err := c.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
}

func TestGoodAnswer(t *testing.T) {
	t.Parallel()
	notes := make(chan string, 1)
	c := child(t, "good", Options{OnNotification: func(method string, _ json.RawMessage) { notes <- method }})
	result, err := c.Call(t.Context(), "x", nil)
	if err != nil || string(result) != "null" || <-notes != "note" {
		t.Errorf("%s, %v", result, err)
	}
}

// A child that neither answers nor ends: the call ends with its context, and Close ends the child.
func TestSilentChild(t *testing.T) {
	t.Parallel()
	c := child(t, "silent", Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := c.Call(ctx, "x", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the deadline", err)
	}
	for range 3 { // with much that the child does not read, too
		if _, err := c.Call(ctx, "x", strings.Repeat("x", 1<<20)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the deadline", err)
		}
	}
	var exit *exec.ExitError
	if err := c.Close(); !errors.As(err, &exit) {
		t.Errorf("close: %v, want the end by a signal", err)
	}
}

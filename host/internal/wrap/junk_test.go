package wrap

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/plugin/wire"
)

// says is a server that writes text instead of answering, in which %ID% is the id of the request.
func says(text string) *starter {
	return fakes(func(p *fake) int {
		p.each(func(m message) {
			if m.Method == "tools/call" {
				fmt.Fprint(p.outW, strings.ReplaceAll(text, "%ID%", string(m.ID)))
			} else if m.ID != nil {
				p.say(`{"jsonrpc":"2.0","id":%s,"result":{"usable":true}}`, m.ID)
			}
		})
		return 0
	})
}

func TestJunk_goes_to_the_log_and_the_answer_to_the_host(t *testing.T) {
	const answer = `{"jsonrpc":"2.0","id":%ID%,"result":{"ok":1}}` + "\n"
	long := strings.Repeat("x", 2<<20)
	cases := []struct {
		name, text string
		logged     []string
		cut        int // bytes of the first line
	}{
		{"banner", "Server v1\n\n \r\n" + answer, []string{"Server v1"}, 0},
		{"two_mebibytes_without_newline", long + answer, []string{"xxxx"}, 2<<20 - process.MaxLineBytes},
		{"two_mebibytes_and_newline", long + "\n" + answer, []string{"xxxx"}, 2<<20 - process.MaxLineBytes},
		{"braces_before_the_message", `{"a" {"b":1} {` + answer, []string{`{"a" {"b":1} {`}, 0},
		{"a_log_line_in_json", `{"level":"info","msg":"hi"}` + "\n" + answer, []string{`{"level":"info","msg":"hi"}`}, 0},
		{"null_id", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}` + "\n" + answer, []string{`{"jsonrpc":"2.0","id":null`}, 0},
		{"an_ack_is_no_message", `{"ack":%ID%}` + "\n" + answer, []string{`{"ack":`}, 0},
		{"invalid_utf8", "\xff\xfe\n" + answer, []string{"\xff\xfe"}, 0},
		{"header", "Content-Length: 12\r\n\r\n" + answer, []string{"Content-Length: 12"}, 0},
		{"pretty", "{\n  \"jsonrpc\": \"2.0\"\n}\n" + answer, []string{"{", `  "jsonrpc": "2.0"`, "}"}, 0},
		{"separators", "a\u2028b\u0085c\n" + answer, []string{"a\u2028b\u0085c"}, 0},
		{"a_byte_order_mark_alone", "\ufeff\n" + answer, nil, 0},
		{"a_byte_order_mark_before_the_answer", "\ufeff" + answer, nil, 0},
		{"crlf", strings.TrimSuffix(answer, "\n") + "\r\n", nil, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Config{Start: says(c.text).start})
			r.open(1, wire.RevisionLegacy)
			if got := r.must(1, "tools/call", "{}"); got != `{"ok":1}` {
				t.Errorf("the answer is %s", got)
			}
			for i, text := range c.logged {
				if l := r.out.until(t, text); l.Stream != process.Stdout || i == 0 && l.Cut != c.cut {
					t.Errorf("logged on %v, cut by %d", l.Stream, l.Cut)
				}
			}
			if got := r.must(1, "tools/list", ""); got != `{"usable":true}` {
				t.Error(got)
			}
			select {
			case m := <-r.from:
				t.Errorf("the host was told %s", m.raw)
			default:
			}
		})
	}
}

func TestJunk_an_answer_that_cannot_be_used_fails_its_request(t *testing.T) {
	cases := []struct {
		name, text string
		want       wire.Code
	}{
		{"no_version", `{"id":%ID%,"result":{}}` + "\n", wire.CodeInternal},
		{"invalid_utf8_in_it", `{"jsonrpc":"2.0","id":%ID%,"result":{"x":"` + "\xff" + `"}}` + "\n", wire.CodeInternal},
		{"result_and_error", `{"jsonrpc":"2.0","id":%ID%,"result":{},"error":{"code":1,"message":"x"}}` + "\n", wire.CodeInternal},
		{"over_the_limit", `{"jsonrpc":"2.0","id":%ID%,"result":"` + strings.Repeat("y", 300_000) + `"}` + "\n", wire.CodeResponseTooLarge},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Config{Start: says(c.text).start, MaxFrameBytes: 200_000})
			r.open(1, wire.RevisionLegacy)
			if e := r.refused(1, "tools/call", "{}"); e.Code != c.want {
				t.Errorf("%v, want code %d", e, c.want)
			}
			if got := r.must(1, "tools/list", ""); got != `{"usable":true}` {
				t.Error(got)
			}
		})
	}
}

func TestJunk_a_result_that_a_bridge_makes_too_large_fails_its_request(t *testing.T) {
	text := `{"jsonrpc":"2.0","result":{"x":"` + strings.Repeat("y", 940) + `"},"id":%ID%}` + "\n"
	s := fakes(func(p *fake) int {
		p.each(func(m message) {
			if m.Method == "tools/call" {
				fmt.Fprint(p.outW, strings.ReplaceAll(text, "%ID%", string(m.ID)))
			} else {
				legacy(m, p.say)
			}
		})
		return 0
	})
	r := newRig(t, Config{Start: s.start, MaxFrameBytes: 1000, Eras: &eraMemory{era: Legacy}})
	r.open(1, wire.RevisionLegacy)
	if got := r.must(1, "tools/call", "{}"); len(got) != 948 {
		t.Errorf("passed through: %d bytes", len(got))
	}
	r.open(2, wire.RevisionModern)
	if e := r.refused(2, "tools/call", "{}"); e.Code != wire.CodeResponseTooLarge {
		t.Errorf("over a bridge: %v", e)
	}
}

func TestBatch_is_taken_apart(t *testing.T) {
	text := ` [ {"jsonrpc":"2.0","method":"notifications/message","params":{}} , {"jsonrpc":"2.0","id":%ID%,"result":{"ok":2}}, [], 7, {"no":1} ] ` + "\n"
	r := newRig(t, Config{Start: says(text).start})
	r.open(1, wire.RevisionLegacy)
	if got := r.must(1, "tools/call", "{}"); got != `{"ok":2}` {
		t.Error(got)
	}
	if m := r.next(); m.Method != "notifications/message" {
		t.Error(m.raw)
	}
	for _, text := range []string{"[]", "7", `{"no":1}`} {
		r.out.until(t, text)
	}
}

func TestJunk_is_rate_limited_and_what_is_dropped_is_counted(t *testing.T) {
	out := newOutput()
	j := junk{output: out.add}
	line := []byte(strings.Repeat("z", process.MaxLineBytes))
	const lines = 2 * process.MaxOutputRate / process.MaxLineBytes
	for range lines {
		j.line(line)
	}
	j.end()
	var passed, dropped int
	for _, l := range out.lines {
		if l.Dropped > 0 {
			dropped += l.Dropped
		} else {
			passed++
		}
	}
	if dropped == 0 || passed+dropped != lines {
		t.Errorf("%d passed and %d dropped of %d", passed, dropped, lines)
	}
	if tail := j.lines(); len(tail) != maxJunkTail {
		t.Errorf("%d lines kept", len(tail))
	}
}

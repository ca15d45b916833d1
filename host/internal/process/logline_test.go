package process

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"
)

func TestParseLine(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 123456000, time.UTC)
	long := strings.Repeat("x", 100)
	cases := []struct {
		name string
		text string
		want LogLine
		ok   bool
	}{
		{"hclog_record", `{"@level":"warn","@message":"disk is slow","@module":"notes.index","@timestamp":"2026-03-04T05:06:07.123456Z","ms":12,"path":"/a"}`,
			LogLine{Level: hclog.Warn, Message: "disk is slow", Module: "notes.index", Time: at,
				Fields: []LogField{{"ms", "12"}, {"path", "/a"}}}, true},
		{"slog_record", `{"time":"2026-03-04T05:06:07.123456Z","level":"ERROR+2","msg":"gone","n":{"a":[1]}}`,
			LogLine{Level: hclog.Error, Message: "gone", Time: at, Fields: []LogField{{"n", `{"a":[1]}`}}}, true},
		{"numeric_level", `{"level":30,"time":1700000000,"msg":"pino"}`, LogLine{Level: hclog.Info, Message: "pino"}, true},
		{"message_is_a_number", `{"@level":"info","@message":5}`, LogLine{Level: hclog.Info, Message: "5"}, true},
		{"level_is_an_array", `{"@level":[],"@message":"m"}`, LogLine{Level: hclog.NoLevel, Message: "m"}, true},
		{"only_a_message", `{"@message":"m"}`, LogLine{Level: hclog.NoLevel, Message: "m"}, true},
		{"line_feed_in_message_stays_one_line", `{"@level":"info","@message":"a\nb\u001b[31m\u2028"}`,
			LogLine{Level: hclog.Info, Message: `a\nb\x1b[31m\u2028`}, true},
		{"control_in_key", `{"@level":"info","@message":"m","a\rb":"c"}`,
			LogLine{Level: hclog.Info, Message: "m", Fields: []LogField{{`a\rb`, "c"}}}, true},
		{"lone_surrogate", `{"@level":"info","@message":"\ud800"}`, LogLine{Level: hclog.Info, Message: "\ufffd"}, true},
		{"cut_in_message_keeps_level_and_beginning", `{"@level":"error","@message":"` + long, LogLine{Level: hclog.Error, Message: long}, true},
		{"cut_in_escape", `{"@level":"error","@message":"ab\u00`, LogLine{Level: hclog.Error, Message: "ab"}, true},
		{"cut_in_field_keeps_message", `{"@level":"error","@message":"m","stack":[[[[`, LogLine{Level: hclog.Error, Message: "m"}, true},
		{"cut_before_message", `{"@level":"error","@me`, LogLine{Level: hclog.Error, Message: `{"@level":"error","@me`}, true},
		{"plain_text", "starting up", LogLine{}, false},
		{"empty", "", LogLine{}, false},
		{"json_but_no_record", `{"jsonrpc":"2.0","method":"x"}`, LogLine{}, false},
		{"level_without_message", `{"level":"info"}`, LogLine{}, false},
		{"text_after_the_object", `{"@level":"info","@message":"m"} x`, LogLine{}, false},
		{"broken_json", `{"@level":"info" "@message":"m"}`, LogLine{}, false},
		{"array", `[1]`, LogLine{}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, ok := ParseLine([]byte(c.text))
			if ok != c.ok {
				t.Fatalf("recognised: %v, want %v", ok, c.ok)
			}
			if got.Level != c.want.Level || got.Message != c.want.Message || got.Module != c.want.Module ||
				!got.Time.Equal(c.want.Time) || !slices.Equal(got.Fields, c.want.Fields) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestParseLineBoundsFields(t *testing.T) {
	var text strings.Builder
	text.WriteString(`{"@level":"info","@message":"m"`)
	for range 1000 {
		text.WriteString(`,"k":1`)
	}
	text.WriteString(`}`)
	line, ok := ParseLine([]byte(text.String()))
	if !ok || len(line.Fields) != maxLogFields {
		t.Errorf("recognised %v with %d fields, want %d", ok, len(line.Fields), maxLogFields)
	}
}

func TestParseLineDeepNesting(t *testing.T) {
	for _, text := range []string{
		`{"@level":"info","@message":"m","d":` + strings.Repeat("[", 4000) + strings.Repeat("]", 4000) + `}`,
		`{"@level":"info","@message":"m","d":` + strings.Repeat(`{"a":`, 1500),
	} {
		line, ok := ParseLine([]byte(text))
		if !ok || line.Message != "m" || line.Level != hclog.Info {
			t.Errorf("recognised %v, level %v, message %q", ok, line.Level, line.Message)
		}
	}
	// Deeper than the parser goes: text, and no crash.
	if _, ok := ParseLine([]byte(`{"d":` + strings.Repeat("[", 1<<20))); ok {
		t.Error("a million brackets were taken for a record")
	}
}

// checkHarmless fails unless text can be printed without effects.
func checkHarmless(t *testing.T, text string) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Errorf("not UTF-8: %q", text)
	}
	for _, r := range text {
		if r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			t.Errorf("%U survives in %q", r, text)
		}
	}
}

func FuzzParseLine(f *testing.F) {
	for _, seed := range []string{
		`{"@level":"warn","@message":"m","@module":"a.b","@timestamp":"2026-03-04T05:06:07.123456Z","n":1}`,
		`{"time":"2026-03-04T05:06:07Z","level":"INFO","msg":"m"}`,
		`{"@message":5}`, `{"@level":[]}`, `{"@level":"error","@message":"cut \ud83d\ude`,
		`{"@level":{"a":[[[[`, "\x00\xff\x1b[2J", `{"level":30,"msg":"\u2028"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		line, ok := ParseLine(text)
		if !bytes.Equal(before, text) {
			t.Fatal("the input was changed")
		}
		if !ok {
			return
		}
		checkHarmless(t, line.Message)
		checkHarmless(t, line.Module)
		if len(line.Fields) > maxLogFields {
			t.Errorf("%d fields", len(line.Fields))
		}
		for _, field := range line.Fields {
			checkHarmless(t, field.Key)
			checkHarmless(t, field.Value)
		}
	})
}

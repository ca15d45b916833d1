package plugin

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// protocol reads PROTOCOL.md.
func protocol(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// blocks returns the fenced blocks of one language.
func blocks(t *testing.T, text, language string) []string {
	t.Helper()
	var out []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	if len(out) == 0 {
		t.Fatalf("PROTOCOL.md has no %s block", language)
	}
	return out
}

// section returns the text between a heading and the next of the same level.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, "\n"+heading+"\n")
	if !ok {
		t.Fatalf("PROTOCOL.md has no %q", heading)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	return rest
}

// cells splits a row of a table.
func cells(row string) []string {
	var out []string
	for cell := range strings.SplitSeq(strings.Trim(row, "|"), "|") {
		out = append(out, strings.TrimSpace(cell))
	}
	return out
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(s), " ", ""))
	if err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return b
}

func TestProtocol_hex_examples_are_frames_of_what_stands_beside_them(t *testing.T) {
	for _, block := range blocks(t, protocol(t), "hex") {
		var frame []byte
		var text strings.Builder
		for i, line := range strings.Split(strings.TrimSuffix(block, "\n"), "\n") {
			left, right, ok := strings.Cut(line, "  | ")
			if !ok {
				t.Fatalf("line %q has no text beside it", line)
			}
			frame = append(frame, unhex(t, left)...)
			if i > 0 {
				text.WriteString(right)
			} else if want := fmt.Sprintf("length %d", binary.BigEndian.Uint32(frame)); right != want {
				t.Errorf("the header says %q, its bytes %q", right, want)
			}
		}
		if want := wire.AppendFrame(nil, []byte(text.String())); !bytes.Equal(frame, want) {
			t.Errorf("example of %s\nis % x\nnot % x", text.String(), frame, want)
		}
		frames := wire.NewFrameReader(bytes.NewReader(frame), 0)
		body, err := frames.Next()
		var env wire.Envelope
		if err != nil || wire.Scan(body, &env) != nil {
			t.Errorf("%q, %v is no envelope", body, err)
		}
		if _, err := frames.Next(); err != io.EOF {
			t.Errorf("behind the example: %v", err)
		}
	}
}

func TestProtocol_violations_have_the_reasons_it_names(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\| `([0-9a-f ]+)` \\| (.*) \\|$").FindAllStringSubmatch(protocol(t), -1)
	if len(rows) < 6 {
		t.Fatalf("only %d violations are shown", len(rows))
	}
	for _, row := range rows {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			defer far.Close()
			c := rpc.NewConn(near, rpc.Options{})
			ended := make(chan error)
			go func() { ended <- c.Run() }()
			_, _ = far.Write(unhex(t, row[1]))
			err := <-ended
			var violation *rpc.ViolationError
			if !errors.As(err, &violation) || !strings.Contains(err.Error(), row[2]) {
				t.Errorf("%s: %v, want a violation: %s", row[1], err, row[2])
			}
		})
	}
}

func TestProtocol_json_examples_are_envelopes(t *testing.T) {
	for _, block := range blocks(t, protocol(t), "json") {
		var env wire.Envelope
		if err := wire.Scan([]byte(block), &env); err != nil {
			t.Errorf("%s: %v", block, err)
			continue
		}
		if string(env.Method()) != wire.MethodReady {
			continue
		}
		ready, err := wire.ParseReady(&env)
		if err == nil {
			err = ready.Check("clock", "1.0.0")
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// names returns the JSON names of a struct's fields, with prefix, and of the structs in it.
func names(prefix string, typ reflect.Type) []string {
	var out []string
	for field := range typ.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		out = append(out, prefix+name)
		if field.Type.Kind() == reflect.Struct && field.Type != reflect.TypeFor[wire.ProtocolRange]() {
			out = append(out, names(prefix+name+".", field.Type)...)
		}
	}
	return out
}

func TestProtocol_names_everything(t *testing.T) {
	text := protocol(t)
	want := []string{
		wire.EnvFD, wire.EnvSocket, wire.EnvListenFD, wire.EnvProtocols, wire.EnvName, wire.EnvLockFD, wire.EnvIdleMS,
		wire.MethodReady, wire.MethodBye, wire.MethodSessionOpen, wire.MethodSessionClose, wire.MethodHealth,
		wire.MethodSnapshot, wire.MethodRestore, wire.MethodShutdown, wire.MethodCancel, wire.MethodProgress,
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[wire.Ready](), reflect.TypeFor[wire.SessionOpen]()} {
		want = append(want, names("", typ)...)
	}
	for _, name := range want {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("PROTOCOL.md does not speak of %s", name)
		}
	}
	limits := section(t, text, "## 9. Limits")
	for what, limit := range map[string]any{
		"body of a frame":                       fmt.Sprintf("1 to %d bytes", wire.DefaultMaxFrameBytes),
		"time from the first to the last byte":  strings.Replace(rpc.FrameTimeout.String(), "s", " s", 1),
		"nesting of one envelope":               fmt.Sprintf("%d levels", wire.MaxDepth),
		"raw id":                                fmt.Sprintf("%d bytes", wire.MaxIDBytes),
		"answers to your own requests":          fmt.Sprintf("%d bytes", rpc.PluginBacklogBytes),
		"frames for you that you do not read":   fmt.Sprintf("%d bytes", rpc.PluginBacklogBytes),
		"`limits.concurrency` + `limits.queue`": fmt.Sprintf("answer %d", wire.CodeBusy),
		"`limits.response_bytes`":               fmt.Sprintf("answer %d", wire.CodeResponseTooLarge),
	} {
		if !regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(what) + `.*` + regexp.QuoteMeta(fmt.Sprint(limit))).MatchString(limits) {
			t.Errorf("the limits do not say that %s has %v", what, limit)
		}
	}
}

func TestSeed_C15_protocol_lists_every_code(t *testing.T) {
	var rows [][]string
	for line := range strings.Lines(section(t, protocol(t), "## 10. Error codes")) {
		if strings.HasPrefix(line, "| -") {
			rows = append(rows, cells(strings.TrimSpace(line)))
		}
	}
	codes := wire.Codes()
	if len(rows) != len(codes) {
		t.Fatalf("%d rows for %d codes", len(rows), len(codes))
	}
	for i, c := range codes {
		want := []string{fmt.Sprint(int(c.Code)), "`" + c.Name + "`", c.Meaning, string(c.Executed), rows[i][4], c.Retry}
		if !reflect.DeepEqual(rows[i], want) || rows[i][4] == "" {
			t.Errorf("row %d is %q, want %q", i, rows[i], want)
		}
	}
}

// step is one line of the transcript.
type step struct {
	host  bool
	frame []byte
	env   wire.Envelope
}

func transcript(t *testing.T) []step {
	t.Helper()
	var steps []step
	for line := range strings.Lines(blocks(t, protocol(t), "transcript")[0]) {
		m := regexp.MustCompile(`^(host|plugin) +([0-9a-f]{8}) (.*)\n$`).FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("line %q is no frame", line)
		}
		s := step{host: m[1] == "host", frame: append(unhex(t, m[2]), m[3]...)}
		if want := wire.AppendFrame(nil, []byte(m[3])); !bytes.Equal(s.frame, want) {
			t.Fatalf("header %s of %s, want %x", m[2], m[3], want[:wire.HeaderBytes])
		}
		if err := wire.Scan(s.frame[wire.HeaderBytes:], &s.env); err != nil {
			t.Fatalf("%s: %v", m[3], err)
		}
		steps = append(steps, s)
	}
	return steps
}

// spoken is a request of the transcript as a call.
type spoken struct {
	env    *wire.Envelope
	answer chan []byte // raw result or error; capacity 1
}

func (s *spoken) AppendRequest(dst []byte, id uint64) []byte {
	head := wire.Head{ID: id, Session: s.env.Session(), TimeoutMS: s.env.TimeoutMS(), Ack: s.env.WantsAck()}
	return wire.AppendRequest(dst, head, string(s.env.Method()), s.env.Params())
}

func (s *spoken) Retire(r rpc.Reply) {
	if r.Phase != rpc.Answered {
		s.answer <- nil
		return
	}
	s.answer <- bytes.Clone(append(r.Env.Result(), r.Env.Error()...))
}

// TestProtocol_transcript_is_what_a_host_says_and_hears plays the transcript: a real connection speaks for
// the host, and the other end compares every byte of it and says the plugin's lines.
func TestProtocol_transcript_is_what_a_host_says_and_hears(t *testing.T) {
	steps := transcript(t)
	first, last := &steps[0], &steps[len(steps)-1]
	ready, err := wire.ParseReady(&first.env)
	if err == nil {
		err = ready.Check("clock", "1.0.0")
	}
	if first.host || err != nil {
		t.Errorf("the first frame is no ready frame: %v", err)
	}
	if last.host || string(last.env.Method()) != wire.MethodBye {
		t.Error("the last frame is no farewell")
	}

	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		var heard [][]byte // what the host's side was told besides answers
		c := rpc.NewConn(near, rpc.Options{Serve: func(_ *rpc.Conn, env *wire.Envelope) {
			heard = append(heard, bytes.Clone(env.Raw))
		}})
		ended := make(chan error)
		go func() { ended <- c.Run() }()

		open := map[string]*spoken{}
		for i := range steps {
			s := &steps[i]
			switch {
			case s.host && s.env.Kind == wire.Request:
				call := &spoken{env: &s.env, answer: make(chan []byte, 1)}
				id, err := c.Start(call)
				if err != nil || fmt.Sprint(id) != string(s.env.ID()) {
					t.Fatalf("%s: the connection mints id %d, %v", s.env.Raw, id, err)
				}
				open[string(s.env.ID())] = call
				_ = c.Flush()
			case s.host:
				if err := c.Notify(s.env.Session(), string(s.env.Method()), s.env.Params()); err != nil {
					t.Fatal(err)
				}
			default:
				_, _ = far.Write(s.frame)
				synctest.Wait()
				checkHeard(t, c, s, open, heard)
				continue
			}
			got := make([]byte, len(s.frame))
			if _, err := io.ReadFull(far, got); err != nil || !bytes.Equal(got, s.frame) {
				t.Fatalf("the host says %q, %v\nnot           %q", got, err, s.frame)
			}
		}
		if len(open) != 0 {
			t.Errorf("%d requests have no answer in the transcript", len(open))
		}
		_ = far.Close()
		if err := <-ended; err != io.EOF {
			t.Errorf("the connection ends with %v, want a clean end", err)
		}
	})
}

// checkHeard compares one line of the plugin with what the connection made of it.
func checkHeard(t *testing.T, c *rpc.Conn, s *step, open map[string]*spoken, heard [][]byte) {
	t.Helper()
	switch s.env.Kind {
	case wire.Response:
		call := open[string(s.env.ID())]
		if call == nil {
			t.Fatalf("%s answers nothing", s.env.Raw)
		}
		delete(open, string(s.env.ID()))
		select {
		case got := <-call.answer:
			if want := append(s.env.Result(), s.env.Error()...); !bytes.Equal(got, want) {
				t.Errorf("the call got %s, want %s", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s did not reach its call", s.env.Raw)
		}
		if call.env.WantsAck() && call.env.Session() == 0 {
			t.Errorf("%s: acknowledgements are for calls of clients", call.env.Raw)
		}
	case wire.Ack:
		id, _ := wire.ParseUint(s.env.AckID())
		if phase, ok := c.Phase(id); !ok || phase != rpc.Acked {
			t.Errorf("after %s request %d is %v, open %v", s.env.Raw, id, phase, ok)
		}
		if call := open[string(s.env.AckID())]; call == nil || !call.env.WantsAck() {
			t.Errorf("%s acknowledges what did not ask for it", s.env.Raw)
		}
	case wire.Notification:
		if len(heard) == 0 || !bytes.Equal(heard[len(heard)-1], s.env.Raw) {
			t.Errorf("%s was not heard", s.env.Raw)
		}
	default:
		t.Errorf("%s is of kind %v", s.env.Raw, s.env.Kind)
	}
}

func TestProtocol_transcript_acknowledges_before_it_answers(t *testing.T) {
	wanted, acked := map[string]bool{}, map[string]bool{}
	for _, s := range transcript(t) {
		switch {
		case s.env.WantsAck():
			wanted[string(s.env.ID())] = true
		case s.env.Kind == wire.Ack:
			acked[string(s.env.AckID())] = true
		case s.env.Kind == wire.Response && wanted[string(s.env.ID())] && !acked[string(s.env.ID())]:
			t.Errorf("%s comes before its acknowledgement", s.env.Raw)
		}
	}
	if len(acked) == 0 {
		t.Error("the transcript shows no acknowledgement")
	}
}

func TestProtocol_error_data_is_what_errors_carry(t *testing.T) {
	example := regexp.MustCompile("`(\\{\"code\":\"E_BUSY\"[^`]*)`").FindStringSubmatch(protocol(t))
	if example == nil {
		t.Fatal("PROTOCOL.md shows no error data")
	}
	var data wire.ErrorData
	if err := json.Unmarshal([]byte(example[1]), &data); err != nil {
		t.Fatal(err)
	}
	if got := wire.NewError(wire.CodeBusy, "", data).Data; string(got) != example[1] {
		t.Errorf("shown as %s, sent as %s", example[1], got)
	}
}

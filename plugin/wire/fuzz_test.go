package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// seeds are one input of each kind, for every target that takes an envelope or a part of one.
var seeds = []string{
	``, ` `, `{}`, `[]`, `null`, `"x"`, `-0.0e+1`, `{"ack":5}`, "\uFEFF{}",
	`{"jsonrpc":"2.0","id":1,"method":"m"}`,
	`{"method":"m","params":{"name":"a","_meta":{"progressToken":"p\"1"}},"jsonrpc":"2.0","id":7}`,
	`{"jsonrpc":"2.0","id":"a\"b\\c\n","result":{"content":[{"type":"text","text":"\u2028\ud800"}]}}`,
	`{"jsonrpc":"2.0","id":9007199254740993,"error":{"code":-32001,"message":"x","data":[1.0,1e400]}}`,
	`{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}`, `{"jsonrpc":"2.0","\u0069d":1,"m\u0065thod":"m"}`,
	`{"jsonrpc":"2.0","id":04,"method":"m"}`, `{"jsonrpc":"2.0","id":4,"method":"m","params":{"a":"` + "\xff" + `"}}`,
	"{\r\n\t\"jsonrpc\": \"2.0\", \"method\" : \"\u2028\u0085é😀\" }\n", `{"jsonrpc":"2.0","id":4,"method":"m","x":[[[[{"a":[]}]]]]}`,
	`{"jsonrpc":"2.0","id":null,"method":"m","params":null}`, `{"jsonrpc":"2.0","id":4,"result":1,"error":null}`,
	fullRequest,
}

// FuzzFrame: any bytes in chunks of any size never panic, never hold more than twice the bytes received plus
// the first buffer, give the same frames however they are cut, and those frames are the bytes that came.
func FuzzFrame(f *testing.F) {
	for _, s := range seeds {
		f.Add(framed(s), uint16(3), uint32(100))
	}
	f.Add(framed("one", "two", "three"), uint16(1), uint32(4))
	f.Add([]byte{0, 0, 0, 0}, uint16(1), uint32(0))
	f.Add([]byte{255, 255, 255, 255, 'x'}, uint16(2), uint32(1<<24))
	f.Add(append(framed("ok"), 0, 0), uint16(7), uint32(9))
	f.Fuzz(func(t *testing.T, data []byte, chunk uint16, limit uint32) {
		size := int(chunk)%1000 + 1
		most := int(limit % (1 << 20))
		d := Decoder{MaxFrameBytes: most}
		if most == 0 {
			most = DefaultMaxFrameBytes
		}
		var again []byte
		var fault error
		received := 0
		for rest := data; len(rest) > 0 && fault == nil; {
			n := min(size, len(rest))
			d.Push(rest[:n])
			rest, received = rest[n:], received+n
			if held := cap(d.buf); held > 2*received+minBufferBytes {
				t.Fatalf("%d bytes held after %d received", held, received)
			}
			for {
				buffered := d.Buffered()
				body, ok, err := d.Next()
				if buffered != (ok || err != nil) {
					t.Fatalf("Buffered = %v, but Next = %v, %v", buffered, ok, err)
				}
				if fault = err; !ok {
					break
				}
				if len(body) == 0 || len(body) > most {
					t.Fatalf("a body of %d bytes, limit %d", len(body), most)
				}
				again = AppendFrame(again, body)
			}
		}
		if !bytes.HasPrefix(data, again) {
			t.Fatalf("the frames are not the bytes that came")
		}

		// The same bytes from a stream: the same frames, and an end that tells a cut from a clean one.
		frames := NewFrameReader(iotestChunks(data, size), d.MaxFrameBytes)
		var streamed []byte
		for {
			body, err := frames.Next()
			if err == nil {
				streamed = AppendFrame(streamed, body)
				continue
			}
			var tooLarge *FrameSizeError
			switch left := data[len(streamed):]; {
			case err == io.EOF && len(left) == 0:
			case err == io.ErrUnexpectedEOF && (len(left) < HeaderBytes && len(left) > 0 || len(left) >= HeaderBytes && len(left) < HeaderBytes+int(binary.BigEndian.Uint32(left))):
			case err == ErrEmptyFrame && bytes.HasPrefix(left, []byte{0, 0, 0, 0}):
			case errors.As(err, &tooLarge) && binary.BigEndian.Uint32(left) == tooLarge.Size && uint64(tooLarge.Size) > uint64(most):
			default:
				t.Fatalf("the stream ends with %v before %d bytes", err, len(left))
			}
			break
		}
		if !bytes.Equal(streamed, again) {
			t.Fatalf("a stream and chunks give different frames")
		}
	})
}

// iotestChunks returns a reader that gives at most n bytes at a time.
func iotestChunks(data []byte, n int) io.Reader {
	src := bytes.NewReader(data)
	return readerFunc(func(p []byte) (int, error) { return src.Read(p[:min(n, len(p))]) })
}

// validJSON is an independent verdict: both of these accept exactly RFC 8259 in UTF-8, with lone surrogate
// escapes allowed and nesting to our bound.
func validJSON(data []byte) bool {
	return json.Valid(data) && utf8.Valid(data) && nesting(data) <= MaxDepth
}

// nesting counts open brackets outside strings, in valid JSON.
func nesting(data []byte) int {
	depth, deepest, inString := 0, 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case !inString && (c == '{' || c == '['):
			depth++
			deepest = max(deepest, depth)
		case !inString && (c == '}' || c == ']'):
			depth--
		}
	}
	return deepest
}

// FuzzEnvelope compares Scan with two parsers that share no code with it.
func FuzzEnvelope(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		valid := validJSON(data)
		if got := ValidValue(data); got != valid {
			t.Fatalf("ValidValue = %v, encoding/json and unicode/utf8 say %v", got, valid)
		}
		if strict := jsontext.Value(data).IsValid(jsontext.AllowDuplicateNames(true)); strict && nesting(data) <= MaxDepth && !valid {
			t.Fatalf("jsontext accepts what Scan refuses")
		} else if valid && !strict && !bytes.Contains(bytes.ToLower(data), []byte(`\ud`)) {
			t.Fatalf("Scan accepts what jsontext refuses, and there is no surrogate")
		}

		var env Envelope
		err := Scan(data, &env)
		var fault *EnvelopeError
		switch {
		case err != nil && !errors.As(err, &fault):
			t.Fatalf("error of type %T", err)
		case err == nil && !valid:
			t.Fatalf("Scan accepts invalid JSON")
		case fault != nil && valid && fault.Code != CodeInvalidRequest:
			t.Fatalf("valid JSON is refused as %v: %v", fault.Code, fault)
		case fault != nil && !valid && fault.Code != CodeParseError && !fault.Batch:
			t.Fatalf("invalid JSON is refused as %v: %v", fault.Code, fault)
		}
		if fault != nil {
			checkSalvage(t, data, valid, fault)
			return
		}
		checkSpans(t, data, &env)
		checkRewrite(t, &env)
	})
}

// checkSalvage holds a salvaged id against an independent decode, where there can be one.
func checkSalvage(t *testing.T, data []byte, valid bool, fault *EnvelopeError) {
	if fault.ID != nil && fault.ResponseID != nil {
		t.Fatalf("salvaged both %s and %s", fault.ID, fault.ResponseID)
	}
	id := fault.ID
	if id == nil {
		id = fault.ResponseID
	}
	if id == nil {
		return
	}
	if !ValidID(id) || !ValidValue(id) || !bytes.Contains(data, id) {
		t.Fatalf("salvaged %q, which is no id of the input", id)
	}
	if !valid {
		return
	}
	members := decodeObject(t, data)
	if string(members.last["id"]) != string(id) || members.count["id"] != 1 {
		t.Fatalf("salvaged %q, the id is %q", id, members.last["id"])
	}
	if answer := members.count["result"]+members.count["error"] > 0; answer != (fault.ResponseID != nil) {
		t.Fatalf("salvaged the id of a response as that of a request, or the other way round")
	}
}

// object is what jsontext finds in an object.
type object struct {
	last  map[string][]byte
	count map[string]int
}

// decodeObject reads the members of an object; a value that is none has no members.
func decodeObject(t *testing.T, data []byte) object {
	o := object{map[string][]byte{}, map[string]int{}}
	dec := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if dec.PeekKind() != '{' {
		return o
	}
	if _, err := dec.ReadToken(); err != nil {
		t.Fatal(err)
	}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			t.Fatal(err)
		}
		key := name.String()
		value, err := dec.ReadValue()
		if err != nil {
			t.Fatal(err)
		}
		o.count[key]++
		o.last[key] = bytes.Clone(value)
	}
	return o
}

// checkSpans compares every member that Scan found with an independent decode.
func checkSpans(t *testing.T, data []byte, env *Envelope) {
	top := decodeObject(t, data)
	params := decodeObject(t, top.last["params"])
	meta := decodeObject(t, params.last["_meta"])
	null := func(raw []byte) []byte {
		if string(raw) == "null" {
			return nil
		}
		return raw
	}
	topError := top.last["error"]
	if top.count["result"] > 0 {
		topError = null(topError)
	}
	for _, m := range []struct {
		name      string
		got, want []byte
	}{
		{"id", env.ID(), null(top.last["id"])},
		{"method", env.RawMethod(), top.last["method"]},
		{"params", env.Params(), null(top.last["params"])},
		{"result", env.Result(), top.last["result"]},
		{"error", env.Error(), topError},
		{"ack", env.AckID(), top.last["ack"]},
		{"name", env.Name(), params.last["name"]},
		{"uri", env.URI(), params.last["uri"]},
		{"arguments", env.Arguments(), params.last["arguments"]},
		{"requestId", env.RequestID(), params.last["requestId"]},
		{"progressToken", env.ProgressToken(), params.last["progressToken"]},
		{"_meta", env.Meta(), params.last["_meta"]},
		{"_meta.progressToken", env.MetaProgressToken(), meta.last["progressToken"]},
		{"_meta.protocolVersion", env.MetaProtocolVersion(), meta.last["io.modelcontextprotocol/protocolVersion"]},
		{"_meta.clientCapabilities", env.MetaClientCapabilities(), meta.last["io.modelcontextprotocol/clientCapabilities"]},
		{"_meta.clientInfo", env.MetaClientInfo(), meta.last["io.modelcontextprotocol/clientInfo"]},
		{"_meta.logLevel", env.MetaLogLevel(), meta.last["io.modelcontextprotocol/logLevel"]},
	} {
		if !bytes.Equal(m.got, m.want) {
			t.Fatalf("%s = %q, an independent decode finds %q", m.name, m.got, m.want)
		}
	}
	var method string
	if raw := top.last["method"]; raw != nil {
		if err := json.Unmarshal(raw, &method); err != nil {
			t.Fatal(err)
		}
	}
	if string(env.Method()) != method {
		t.Fatalf("Method = %q, encoding/json reads %q", env.Method(), method)
	}
}

// checkRewrite puts the parts of an envelope into new ones and scans those.
func checkRewrite(t *testing.T, env *Envelope) {
	var out Envelope
	scan := func(data []byte, want Kind) {
		if err := Scan(data, &out); err != nil || out.Kind != want {
			t.Fatalf("%q: kind %v, %v; want %v", data, out.Kind, err, want)
		}
	}
	switch env.Kind {
	case Request, Notification:
		head := AppendRequestHead(nil, Head{ID: 17, Session: 2, TimeoutMS: 3, Ack: true}, env.RawMethod())
		scan(appendParams(head, env.Params()), Request)
		if !bytes.Equal(out.Params(), env.Params()) || !bytes.Equal(out.RawMethod(), env.RawMethod()) || string(out.ID()) != "17" || out.Session() != 2 || out.TimeoutMS() != 3 || !out.WantsAck() {
			t.Fatalf("a rewritten request reads differently: %q", out.Raw)
		}
		scan(AppendRequest(nil, Head{ID: 17}, string(env.Method()), env.Params()), Request)
		if !bytes.Equal(out.Method(), env.Method()) {
			t.Fatalf("method %q comes back as %q", env.Method(), out.Method())
		}
		scan(AppendNotification(nil, 5, string(env.Method()), env.Params()), Notification)
	case Response:
		if env.Result() != nil {
			scan(AppendResult(nil, env.ID(), env.Result()), Response)
			if !bytes.Equal(out.Result(), env.Result()) {
				t.Fatalf("result %q comes back as %q", env.Result(), out.Result())
			}
		} else {
			scan(AppendRawError(nil, env.ID(), env.Error()), Response)
		}
		if !bytes.Equal(out.ID(), env.ID()) {
			t.Fatalf("id %q comes back as %q", env.ID(), out.ID())
		}
	case Ack:
		scan(AppendAck(nil, env.AckID()), Ack)
	default:
		t.Fatalf("kind %v without an error", env.Kind)
	}
	// Compact bytes mean the same and fit on one line.
	compact := AppendCompact(nil, env.Raw)
	scan(compact, env.Kind)
	if HasNewline(compact) || !bytes.Equal(out.ID(), env.ID()) {
		t.Fatalf("compact form differs: %q", compact)
	}
	twice := AppendCompact(nil, compact)
	if !bytes.Equal(twice, compact) {
		t.Fatalf("compacting twice changes %q", compact)
	}
}

// FuzzID: whatever Scan takes for an id comes back byte for byte, and only strings and numbers are ids.
func FuzzID(f *testing.F) {
	for _, s := range []string{`1`, `"1"`, `1.0`, `0`, `-1`, `9007199254740993`, `18446744073709551615`, `18446744073709551616`, `""`, `"a\"b\\c\n"`, `null`, `true`, `{}`, `[]`, `01`, `1 `, `"\ud800"`, `1,"id":2`, `1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, id []byte) {
		if n, ok := ParseUint(id); ok && string(AppendUint(nil, n)) != string(id) {
			t.Fatalf("%q parses as %d", id, n)
		}
		alone := validJSON(id) && nesting(id) < MaxDepth
		trimmed := bytes.Trim(id, " \t\r\n")
		var env Envelope
		err := Scan(append(append([]byte(`{"jsonrpc":"2.0","method":"m","id":`), id...), '}'), &env)
		switch {
		case !alone:
			// Members may hide in what is no single value; the scan must only not crash.
		case ValidID(trimmed):
			if err != nil || env.Kind != Request || !bytes.Equal(env.ID(), trimmed) {
				t.Fatalf("id %q: kind %v, id %q, %v", id, env.Kind, env.ID(), err)
			}
			var answer Envelope
			if err := Scan(AppendResult(nil, env.ID(), []byte("{}")), &answer); err != nil || !bytes.Equal(answer.ID(), trimmed) {
				t.Fatalf("id %q comes back as %q, %v", id, answer.ID(), err)
			}
		case string(trimmed) == "null":
			if err != nil || env.Kind != Notification || !env.NullID() {
				t.Fatalf("null id: kind %v, %v", env.Kind, err)
			}
		default:
			if err == nil {
				t.Fatalf("id %q is accepted", id)
			}
		}
	})
}

// FuzzLine: lines in chunks of any size are the lines of bytes.Split, overlong ones are reported with their
// size and never more than a bounded part of them is held.
func FuzzLine(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s+"\n"), uint16(3), uint16(40))
	}
	f.Add([]byte("a\r\n\r\n \t\nb"), uint16(1), uint16(1))
	f.Add([]byte("{\"id\":1,\"method\":\"m\",\"x\":\"0123456789\"}\r\nnext"), uint16(1), uint16(8))
	f.Add([]byte("\uFEFF{}\n\uFEFF\n"), uint16(2), uint16(9))
	f.Fuzz(func(t *testing.T, data []byte, chunk, limit uint16) {
		most := int(limit)%512 + 1
		lines := NewLineReader(iotestChunks(data, int(chunk)%1000+1), most)
		pieces := bytes.Split(data, []byte{'\n'})
		for i, piece := range pieces {
			want := bytes.TrimSuffix(piece, []byte{'\r'})
			if isBlank(want) && len(want) <= most {
				continue // also the piece behind the last newline
			}
			line, err := lines.Next()
			var size *LineSizeError
			switch {
			case len(want) > most:
				if !errors.As(err, &size) || size.Size != int64(len(want)) || size.Limit != most {
					t.Fatalf("line %d of %d bytes, limit %d: %v", i, len(want), most, err)
				}
				if size.ID != nil && (!ValidID(size.ID) || !bytes.Contains(want, size.ID)) {
					t.Fatalf("salvaged %q", size.ID)
				}
				if validJSON(want) && nesting(want) <= MaxDepth {
					checkSalvage(t, want, true, &EnvelopeError{ID: size.ID, ResponseID: size.ResponseID})
				}
			case err != nil || !bytes.Equal(line, bytes.TrimPrefix(want, byteOrderMark)):
				t.Fatalf("line %d = %q, %v; want %q", i, line, err, want)
			}
			if held := cap(lines.buf); held > 4*(most+minBufferBytes) {
				t.Fatalf("%d bytes held for a limit of %d", held, most)
			}
		}
		if line, err := lines.Next(); err != io.EOF {
			t.Fatalf("after the last line: %q, %v", line, err)
		}
	})
}

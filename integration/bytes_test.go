package integration

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

// textOf is n bytes of text that every careless re-encoding would change.
func textOf(n int) string {
	const part = `0 é\" / <b>&amp; ✓ `
	return strings.ToValidUTF8(strings.Repeat(part, n/len(part)+1)[:n], "?")
}

// Sizes around every power that a fixed buffer could have, both ways, byte for byte.
func TestSizesBothWays(t *testing.T) {
	t.Parallel()
	sizes := []int{0, 1, 4_095, 65_535, 65_536, 65_537, 1_048_577, 8 << 20}
	_, h := kitBeside(t, stamp.Options{}, "--max-output-bytes", "20MiB")
	for _, size := range append(sizes, 16<<20-4096) {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			sent := json.RawMessage(`{"text":"` + textOf(size) + `"}`)
			for _, a := range []rig.Answer{
				h.Call("tools/call", json.RawMessage(`{"name":"kit__echo","arguments":`+string(sent)+`}`)),
				h.Call("kit.echo", sent),
			} {
				if got := a.Kit(t).Arguments; string(got) != string(sent) {
					t.Errorf("%d bytes came back as %d others", len(sent), len(got))
				}
			}
			if size > 0 {
				if got := len(h.Tool("kit__big", map[string]any{"bytes": size}).Kit(t).Text); got < size-4 {
					t.Errorf("asked for %d bytes, got %d", size, got)
				}
			}
		})
	}
}

// What is over a limit is one clear error for one id; everything else goes on.
func TestOverTheLimits(t *testing.T) {
	t.Parallel()
	_, h := kitBeside(t, stamp.Options{})
	held := h.StartTool("kit__sleep", map[string]any{"ms": 300})
	a := h.Tool("kit__big", map[string]any{"bytes": 12 << 20})
	if text := fmt.Sprint(a.Error, string(a.Result)); a.Error != nil && a.Error.Code != -32006 || a.Error == nil && !strings.Contains(text, `"isError":true`) {
		t.Errorf("an answer of 12 MiB with a limit of 9 MiB: %s", a)
	}
	f := h.Expect("1")
	h.Line(rig.Line("1", "kit.echo", map[string]any{"text": strings.Repeat("x", 17<<20)}))
	if a := f.Wait(); a.Error == nil || a.Error.Code != -32700 && a.Error.Code != -32600 {
		t.Errorf("a request of 17 MiB: %s", a)
	}
	held.Wait().Kit(t)
	h.Tool("kit__echo", nil).Kit(t)
}

// Members that nobody knows, digits of numbers, and the order of names survive the way there and back.
func TestNothingIsReEncoded(t *testing.T) {
	t.Parallel()
	_, h := kitBeside(t, stamp.Options{})
	for _, arguments := range []string{
		`{"n":1.0,"e":1E5,"big":12345678901234567890,"neg":-0.0,"z":1,"a":2}`,
		`{"esc":"\u00e9\/\ud83d\ude00","lone":"\ud800","nul":"\u0000"}`,
		`{"deep":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`,
		"{\"line\":\"\u2028\u2029\u0085\"}",
		`{ "spaced" : [ 1 , 2 ] }`,
	} {
		a := h.Call("tools/call", json.RawMessage(`{"name":"kit__echo","unknown":{"x":1.50},"arguments":`+arguments+`}`))
		if got := string(a.Kit(t).Arguments); got != arguments {
			t.Errorf("%s came back as %s", arguments, got)
		}
	}
}

// Ids come back byte for byte, also when many of them mean nearly the same.
func TestIdsInFlightTogether(t *testing.T) {
	t.Parallel()
	p, h := kitBeside(t, stamp.Options{})
	ids := []string{
		`1`, `"1"`, `1.0`, `0`, `-1`, `9007199254740993`, `18446744073709551615`, `""`, `"a\"b\\c\n"`, `"\u0031"`, `1e0`,
		`"` + strings.Repeat("k", 4096) + `"`,
	}
	calls := make([]*rig.Future, len(ids))
	for i, id := range ids {
		calls[i] = h.RequestID(id, "tools/call", rig.ToolCall("kit__hold", map[string]any{
			"file": p.Path("held"), "nonce": fmt.Sprint("id", i), "until": p.Path("release"),
		}))
	}
	p.Await("the calls are running", func() bool { return len(p.Lines("held")) == len(ids) })
	for _, id := range []string{`null`, `true`, `{}`, `[]`} {
		h.Line(`{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}`)
	}
	h.Call("ping", nil)
	p.Write("release", "")
	for i, f := range calls {
		var got struct{ Nonce string }
		r := f.Wait().Tool(t)
		if err := json.Unmarshal(r.Structured, &got); err != nil || got.Nonce != fmt.Sprint("id", i) {
			t.Errorf("the id %s got the answer of another call: %s", ids[i], r.Structured)
		}
	}
}

// An id that is still in flight cannot be used again: the second use is refused and not executed, the first is answered.
func TestIdInUse(t *testing.T) {
	t.Parallel()
	p, h := kitBeside(t, stamp.Options{})
	call := func(nonce string) any {
		return rig.ToolCall("kit__hold", map[string]any{"file": p.Path("held"), "nonce": nonce, "until": p.Path("release")})
	}
	one := h.RequestID("7", "tools/call", call("first"))
	p.Await("the call is running", func() bool { return len(p.Lines("held")) == 1 })
	two := h.RequestID("7", "tools/call", call("second"))
	if a := one.Wait(); a.Error == nil || a.Error.Code != -32600 { // answers are handed out in the order they come
		t.Errorf("the second use of an id: %s, want -32600", a)
	}
	p.Write("release", "")
	two.Wait().Kit(t)
	if lines := p.Lines("held"); len(lines) != 1 || !strings.HasPrefix(lines[0], "first ") {
		t.Errorf("executed: %v", lines)
	}
}

// A plugin that floods its outputs delays nobody, and nothing of it reaches the client.
func TestFloodOnStderrAndStdout(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Kit("kit", "1.0.0", stamp.Options{})
	p.Kit("calm", "1.0.0", stamp.Options{})
	h := p.Serve()
	h.Initialize(nil)
	h.Tool("calm__echo", nil).Kit(t)
	var floods []*rig.Future
	for _, where := range []string{"stderr", "stdout"} {
		floods = append(floods,
			h.StartTool("kit__noise", map[string]any{"where": where, "bytes": 20 << 20, "line": 200}),
			h.StartTool("kit__noise", map[string]any{"where": where, "bytes": 5 << 20, "line": 5 << 20}))
	}
	for i := range 200 {
		h.Tool("calm__echo", map[string]any{"n": i}).Kit(t)
	}
	for _, f := range floods {
		f.Wait().Kit(t)
	}
	h.Tool("kit__echo", nil).Kit(t)
	if kib := rig.ResidentKiB(h.PID()); kib > 512<<10 {
		t.Errorf("the host has %d KiB in memory", kib)
	}
}

// 250 entries in pages: all of them in one list.
func TestListsInPages(t *testing.T) {
	t.Parallel()
	_, h := kitBeside(t, stamp.Options{List: stamp.ListMany, Pages: 50})
	for _, l := range []struct{ method, member, key, entry string }{
		{"tools/list", "tools", "name", "kit__many_%03d"},
		{"prompts/list", "prompts", "name", "kit__prompt_%03d"},
		{"resources/list", "resources", "uri", "kit:///many/%03d"},
		{"resources/templates/list", "resourceTemplates", "uriTemplate", "kit:///t%03d/{id}"},
	} {
		list := h.List(l.method, l.member, l.key)
		for i := range 250 {
			if entry := fmt.Sprintf(l.entry, i); !slices.Contains(list, entry) {
				t.Errorf("%s of %d entries lacks %s", l.method, len(list), entry)
			}
		}
	}
	h.Tool("kit__many_249", nil).Kit(t)
}

// One tool that clients would reject the whole list for is left out, with a reason.
func TestBadToolIsLeftOut(t *testing.T) {
	t.Parallel()
	p, h := kitBeside(t, stamp.Options{List: stamp.ListBadTool})
	tools := strings.Join(h.Tools(), " ")
	if strings.Contains(tools, "kit__bad") || !strings.Contains(tools, "kit__echo") {
		t.Errorf("tools: %s", tools)
	}
	if problems := strings.Join(statusOf(t, p, "kit").Problems, " "); !strings.Contains(problems, "bad") {
		t.Errorf("status does not say why: %q", problems)
	}
}

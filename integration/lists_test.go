package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

// hostProblems are what status says of the host itself and of its client.
func hostProblems(p *rig.Place) string {
	s, _ := rig.JSON[struct {
		Hosts []struct {
			Status struct {
				Problems []string `json:"problems"`
			} `json:"status"`
		} `json:"hosts"`
	}](p, "status")
	if len(s.Hosts) != 1 {
		return ""
	}
	return strings.Join(s.Hosts[0].Status.Problems, "\n")
}

// awaitProblem waits until status says of a plugin all of the parts.
func awaitProblem(t *testing.T, p *rig.Place, plugin string, parts ...string) {
	t.Helper()
	p.Await(fmt.Sprintf("status of %s says %q", plugin, parts), func() bool {
		problems := strings.Join(statusOf(t, p, plugin).Problems, "\n")
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(problems, part) })
	})
}

// wrapKit drops a manifest for a kit that is started as an ordinary MCP server on stdin and stdout, by a shell that does
// something first.
func wrapKit(t *testing.T, p *rig.Place, name string, o stamp.Options, first string) {
	t.Helper()
	p.Kit(name, "1.0.0", o)
	server := p.Path(name + "-server")
	if err := os.Rename(p.File(name, "1.0.0"), server); err != nil {
		t.Fatal(err)
	}
	p.Write(filepath.Join(p.Plugins, name+"_v1.0.0.json"), fmt.Sprintf(`{"command":"sh","args":["-c",%q]}`, first+"exec "+server))
}

// decode reads JSON that has to fit.
func decode(t *testing.T, raw json.RawMessage, into any) {
	t.Helper()
	if err := json.Unmarshal(raw, into); err != nil {
		t.Errorf("%s: %v", raw, err)
	}
}

// One list of a plugin fails, hangs, leads in a circle or is none. Its other lists are there, its tools can be called,
// another plugin is not disturbed, and status says why.
func TestOneBrokenListHidesNoOther(t *testing.T) {
	t.Parallel()
	for list, reason := range map[string][]string{
		stamp.ListPromptsFail: {"prompts/list: ", "the prompts are lost", "asked again every minute"},
		stamp.ListPromptsHang: {"prompts/list: ", "no answer within 3s", "asked again every minute"},
		stamp.ListLoop:        {"tools/list: page 2 leads back"},
		stamp.ListBroken:      {"tools/list: ", `no array "tools"`},
		stamp.ListBadTool:     {"tools/list: ", `"bad"`, `no "type":"object"`},
	} {
		t.Run(list, func(t *testing.T) {
			t.Parallel()
			p := rig.NewPlace(t)
			p.Kit("good", "1.0.0", stamp.Options{})
			p.Kit("odd", "1.0.0", stamp.Options{List: list})
			p.Settings("odd", map[string]any{"start_timeout": "3s"})
			h := p.Serve("--list-wait", "10m")
			h.Initialize(nil)
			tools := h.Tools()
			if !slices.Contains(tools, "good__echo") || list != stamp.ListBroken && !slices.Contains(tools, "odd__echo") {
				t.Errorf("tools: %v", tools)
			}
			if prompts := h.List("prompts/list", "prompts", "name"); !slices.Contains(prompts, "good__good-prompt") {
				t.Errorf("prompts: %v", prompts)
			}
			if resources := h.List("resources/list", "resources", "uri"); !slices.Contains(resources, "odd:///version") {
				t.Errorf("resources: %v", resources)
			}
			h.Tool("good__echo", nil).Kit(t)
			if list != stamp.ListBroken {
				h.Tool("odd__echo", nil).Kit(t)
			}
			awaitProblem(t, p, "odd", reason...)
			if problems := statusOf(t, p, "good").Problems; len(problems) > 0 {
				t.Errorf("problems of the good plugin: %q", problems)
			}
		})
	}
}

// A plugin with 25,000 tools: what another one lists stands on the first page all the same, and nothing is lost behind
// it.
func TestCrowdOfToolsHidesNobody(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Kit("crowd", "1.0.0", stamp.Options{List: stamp.ListCrowd})
	p.Kit("good", "1.0.0", stamp.Options{})
	h := p.Serve("--list-wait", "10m", "--max-output-bytes", "1MiB")
	h.Initialize(nil)
	seen := map[string]int{}
	params := map[string]any{}
	for page := 0; page == 0 || params["cursor"] != nil; page++ {
		a := h.Call("tools/list", params)
		var result struct {
			Tools []struct{ Name string }
			Next  json.RawMessage `json:"nextCursor"`
		}
		if a.Error != nil || json.Unmarshal(a.Result, &result) != nil {
			t.Fatalf("page %d: %s", page, a)
		}
		if len(a.Line) > 1<<20 {
			t.Errorf("page %d is a line of %d bytes", page, len(a.Line))
		}
		for _, tool := range result.Tools {
			seen[tool.Name]++
		}
		for _, name := range []string{"good__echo", "good__count", "crowd__echo"} {
			if seen[name] != 1 {
				t.Errorf("after page %d %s was listed %d times", page, name, seen[name])
			}
		}
		delete(params, "cursor")
		if result.Next != nil {
			params["cursor"] = result.Next
		}
	}
	if len(seen) < 25_000 || seen["crowd__many_24999"] != 1 {
		t.Errorf("%d tools on all pages, the last one %d times", len(seen), seen["crowd__many_24999"])
	}
	h.Tool("crowd__many_24999", nil).Kit(t)
	awaitProblem(t, p, "crowd", "tools/list: ", "not on its first page")
	if problems := statusOf(t, p, "good").Problems; len(problems) > 0 {
		t.Errorf("problems of the other plugin: %q", problems)
	}
}

// Names that clients refuse, that become equal when they are cut, and that two plugins have: each is acceptable, leads to
// its own tool, and is the same after a restart and an upgrade. One without a name is left out, with a reason.
func TestOddNames(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	for _, name := range []string{"one", "two"} {
		p.Kit(name, "1.0.0", stamp.Options{List: stamp.ListNames})
	}
	h := p.Serve("--list-wait", "10m")
	h.Initialize(nil)
	expect := func(h *rig.Host) (names []string) {
		t.Helper()
		reached := map[string]bool{}
		for _, name := range h.Tools() {
			if len(name) > 46 || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
				t.Errorf("the name %q", name)
			}
			plugin, own, _ := strings.Cut(name, "__")
			if plain := []string{"with", "gr", "a_b", "nnn"}; !slices.ContainsFunc(plain, func(start string) bool { return strings.HasPrefix(own, start) }) {
				continue
			}
			names = append(names, name)
			var got struct{ Nonce string }
			if err := json.Unmarshal(h.Tool(name, nil).Tool(t).Structured, &got); err != nil || got.Nonce == "" {
				t.Errorf("%s reached no tool", name)
			}
			reached[plugin+" "+got.Nonce] = true
		}
		if want := 2 * (len(stamp.OddNames) - 1); len(names) != want || len(reached) != want {
			t.Errorf("%d names lead to %d tools, want %d: %v", len(names), len(reached), want, names)
		}
		return names
	}
	first := expect(h)
	awaitProblem(t, p, "one", `tools/list: an entry without "name"`)
	for _, name := range []string{"one__with_space", "one__a_b", "two__with_space"} {
		if !slices.Contains(first, name) && !slices.ContainsFunc(first, func(s string) bool { return strings.HasPrefix(s, name+"_") }) {
			t.Errorf("no name like %s: %v", name, first)
		}
	}
	p.Kit("one", "1.1.0", stamp.Options{List: stamp.ListNames})
	if out := p.Command("upgrade", "one"); out.Code == 0 || !strings.Contains(out.String(), `without "name"`) {
		t.Errorf("an upgrade to a list with an invalid entry: exit code %d\n%s", out.Code, out)
	}
	p.MustCommand("restart", "one")
	if again := expect(h); !slices.Equal(again, first) {
		t.Errorf("after a restart the names are\n%v, were\n%v", again, first)
	}
	h.Close()
	h = p.Serve("--list-wait", "10m")
	h.Initialize(nil)
	if again := expect(h); !slices.Equal(again, first) {
		t.Errorf("in the next host the names are\n%v, were\n%v", again, first)
	}
	p.Kit("one", "1.2.0", stamp.Options{List: stamp.ListNamesMended})
	p.MustCommand("upgrade", "one", "--to", "1.2.0", "--settle", "0")
	again := expect(h)
	slices.Sort(again)
	if slices.Sort(first); !slices.Equal(again, first) {
		t.Errorf("after an upgrade to a list in another order the names are\n%v, were\n%v", again, first)
	}
}

// Two plugins with one resource: it is listed once, and read from the first of them, in every host.
func TestTwoPluginsWithOneResource(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Kit("first", "1.0.0", stamp.Options{List: stamp.ListShared, BootDelayMS: 300})
	p.Kit("second", "2.0.0", stamp.Options{List: stamp.ListShared})
	for range 2 {
		h := p.Serve("--list-wait", "10m")
		h.Initialize(nil)
		resources := h.List("resources/list", "resources", "uri")
		if n := len(slices.DeleteFunc(resources, func(uri string) bool { return uri != "shared:///one" })); n != 1 {
			t.Errorf("the resource is listed %d times", n)
		}
		if a := h.Call("resources/read", map[string]any{"uri": "shared:///one"}); !strings.Contains(string(a.Result), `"1.0.0"`) {
			t.Errorf("read: %s", a)
		}
		h.Close()
	}
}

// One junk line, one unknown method, one batch where there are none, one question that no client can be asked: each is in
// status, and nobody is disturbed.
func TestOddThingsAreInStatus(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Kit("good", "1.0.0", stamp.Options{})
	wrapKit(t, p, "wrapped", stamp.Options{}, "echo Listening on stdio; ")
	h := p.Serve("--list-wait", "10m")
	h.Initialize(nil)
	h.Tools()
	for _, line := range []string{`junk`, `{"jsonrpc":"2.0","method":5}`, `[{"jsonrpc":"2.0","id":91,"method":"ping"}]`, `{"jsonrpc":"2.0","id":92,"result":{}}`} {
		h.Line(line)
	}
	for _, method := range []string{"tools/fly", "nobody.knows"} {
		if a := h.Call(method, nil); a.Error == nil || a.Error.Code != -32601 {
			t.Errorf("%s: %s", method, a)
		}
	}
	h.Tool("good__ask", map[string]any{"method": "client/fly", "params": map[string]any{}})
	for _, name := range []string{"good", "wrapped"} {
		h.Tool(name+"__echo", nil).Kit(t)
	}
	awaitProblem(t, p, "good", "asked the client for what that cannot be asked", "client/fly")
	awaitProblem(t, p, "wrapped", "lines on stdout that are no messages: 1", "Listening on stdio", "sox-host logs wrapped")
	if !strings.Contains(h.Log(), "a batch array") {
		t.Errorf("the log does not mention the batch:\n%s", h.Log())
	}
	problems := hostProblems(p)
	for _, part := range []string{"a line that is no valid message (3 times", "a method that nobody serves (2 times, the last: nobody.knows)", "answered what it was not asked"} {
		if !strings.Contains(problems, part) {
			t.Errorf("status of the host lacks %q:\n%s", part, problems)
		}
	}
}

// A plugin that starts slowly with its lists known: calls wait for it, status shows that, and a call whose own time is
// over ends without having been run.
func TestCallsWaitForASlowStart(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Kit("kit", "1.0.0", stamp.Options{})
	p.Settings("kit", map[string]any{"start_timeout": "10m", "env": map[string]string{stamp.EnvFile: p.Path("kit.overlay")}})
	h := p.Serve("--list-wait", "10m")
	h.Initialize(nil)
	h.Tools()
	h.Close()
	setOverlay(t, p, "kit", stamp.Options{BootUntil: p.Path("up")})
	h = p.Serve()
	h.Initialize(nil)
	held := h.StartTool("kit__echo", nil)
	short := h.Expect(`"short"`)
	h.Line(`{"jsonrpc":"2.0","id":"short","timeout_ms":300,"method":"tools/call","params":{"name":"kit__echo"}}`)
	p.Await("status shows the start", func() bool {
		s, _ := rig.JSON[struct {
			Hosts []struct {
				Status struct {
					Plugins []struct {
						State  string `json:"state"`
						Queued int    `json:"queued"`
					} `json:"plugins"`
				} `json:"status"`
			} `json:"hosts"`
		}](p, "status")
		return len(s.Hosts) == 1 && s.Hosts[0].Status.Plugins[0].State == "starting" && s.Hosts[0].Status.Plugins[0].Queued > 0
	})
	if a := short.Wait(); a.Error == nil || a.Error.Code != -32005 || a.Error.Info().Executed != "no" {
		t.Errorf("a call whose time was over: %s", a)
	}
	if held.Answered() {
		t.Errorf("a call was answered by nobody: %s", held.Wait())
	}
	p.Write("up", "")
	held.Wait().Kit(t)
}

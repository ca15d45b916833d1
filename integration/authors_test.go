package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

// interpreter skips a test that needs a program which is not installed.
func interpreter(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed: %v", name, err)
	}
	return path
}

// dropScript drops an example that is a script, as it is or with changes: pairs of old and new text. Interpreters start slowly on a busy machine, so
// that they get a minute instead of 10 s.
func dropScript(t *testing.T, p *rig.Place, file, name, version string, changes ...string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(rig.ModuleRoot(), "examples", file))
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	for pair := range slices.Chunk(changes, 2) {
		if strings.Count(text, pair[0]) != 1 {
			t.Fatalf("%s does not have %q once", file, pair[0])
		}
		text = strings.Replace(text, pair[0], pair[1], 1)
	}
	p.Settings(name, map[string]any{"start_timeout": rig.Patience.String()})
	if err := stamp.WriteProgram(p.File(name, version), []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// runProgram runs a program in the environment of a place, to its end.
func runProgram(t *testing.T, p *rig.Place, program string, args ...string) rig.Output {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.Dir = p.Environ(), p.Home
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatalf("%s: %v", program, err)
	}
	return rig.Output{Code: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
}

// Both scripts behind the real host, under the official client, in both eras.
func TestScriptsUnderTheOfficialClient(t *testing.T) {
	t.Parallel()
	interpreter(t, "python3")
	interpreter(t, "node")
	for _, revision := range eras {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			p := rig.NewPlace(t)
			dropScript(t, p, "py-clock/py-clock.py", "py-clock", "1.0.0")
			dropScript(t, p, "node-dice/node-dice.cjs", "node-dice", "1.0.0")
			c := connect(t, p, revision, nil, "--list-wait", rig.Patience.String())
			if got, want := c.tools(t), []string{"node-dice__roll", "py-clock__now", "py-clock__wait"}; !slices.Equal(slices.Sorted(slices.Values(got)), want) {
				t.Errorf("tools %v, want %v", got, want)
			}
			for tool, arguments := range map[string]map[string]any{
				"py-clock__now":   {"utc_offset": 1},
				"py-clock__wait":  {"seconds": 0},
				"node-dice__roll": {"dice": 3, "sides": 20},
			} {
				result, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
				if err != nil || result.IsError || result.StructuredContent == nil {
					t.Errorf("%s: %+v, %v", tool, result, err)
				}
			}
			result, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "node-dice__roll", Arguments: map[string]any{"dice": 0}})
			if err != nil || !result.IsError {
				t.Errorf("no dice: %+v, %v", result, err)
			}
		})
	}
}

// spoken is what the scripts answer with.
type spoken struct {
	Clock string `json:"clock"`
	Dice  string `json:"dice"`
}

// spokenBy is the zero value, and an error of the test, if it was no script that answered.
func spokenBy(t *testing.T, a rig.Answer) (s spoken) {
	t.Helper()
	var r rig.ToolResult
	raw := a.Result
	if json.Unmarshal(raw, &r) == nil && r.Structured != nil {
		raw = r.Structured
	}
	if json.Unmarshal(raw, &s) != nil || s == (spoken{}) {
		t.Errorf("no answer of a script: %s", a)
	}
	return s
}

// A script is replaced while calls are running: what began in the old version ends there, everything else is answered too.
func TestPyClockUpgradeUnderCalls(t *testing.T) {
	t.Parallel()
	interpreter(t, "python3")
	p := rig.NewPlace(t)
	dropScript(t, p, "py-clock/py-clock.py", "py-clock", "1.0.0")
	h := p.Serve()
	h.Initialize(nil)
	if s := spokenBy(t, h.Tool("py-clock__now", nil)); s.Clock != "py-clock 1.0.0" {
		t.Fatalf("it was %q that answered", s.Clock)
	}
	long := h.StartTool("py-clock__wait", map[string]any{"seconds": 3})
	cancelled := h.StartTool("py-clock__wait", map[string]any{"seconds": 100})

	stop := make(chan struct{})
	var callers sync.WaitGroup
	versions := make([]map[string]int, 2)
	for i := range versions {
		versions[i] = map[string]int{}
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				a := h.Tool("py-clock__now", nil)
				if i == 1 {
					a = h.Call("clock.now", nil)
				}
				s := spokenBy(t, a)
				if s.Clock == "" {
					return
				}
				versions[i][s.Clock]++
			}
		})
	}
	dropScript(t, p, "py-clock/py-clock.py", "py-clock", "1.1.0",
		`VERSION = "1.0.0"`, `VERSION = "1.1.0"`,
		"TOOLS = {\n", `TOOLS = {`+"\n"+`    "today": {"run": now, "describes": {"description": "Tell the date.", "inputSchema": {"type": "object"}}},`+"\n")
	upgrade := goCommand(p, "upgrade", "py-clock")
	h.AwaitMessages("notifications/tools/list_changed", 1)
	if !slices.Contains(h.Tools(), "py-clock__today") {
		t.Errorf("tools after the notice: %v", h.Tools())
	}
	h.Cancel(cancelled)
	out := <-upgrade
	close(stop)
	callers.Wait()
	if out.Code != 0 || !strings.Contains(out.Stdout, "1.0.0 -> 1.1.0") || !strings.Contains(out.Stdout, "+ tools today") || !strings.Contains(out.Stdout, "0 calls failed") {
		t.Errorf("the command ends with %d and says\n%s", out.Code, out)
	}
	if s := spokenBy(t, long.Wait()); s.Clock != "py-clock 1.0.0" {
		t.Errorf("a call that began in 1.0.0 was answered by %q", s.Clock)
	}
	if cancelled.Answered() {
		t.Errorf("a cancelled call was answered: %s", cancelled.Wait())
	}
	for i, n := range versions {
		if n["py-clock 1.1.0"] == 0 || len(n) > 2 {
			t.Errorf("caller %d was answered by %v", i, n)
		}
	}
	p.MustCommand("rollback", "py-clock")
	if s := spokenBy(t, h.Call("clock.now", nil)); s.Clock != "py-clock 1.0.0" {
		t.Errorf("after the rollback %q answers", s.Clock)
	}
}

// When a script dies in the middle of a call, its acknowledgement decides what the client is told; the next call is served by a fresh one.
func TestScriptsDie(t *testing.T) {
	t.Parallel()
	interpreter(t, "python3")
	interpreter(t, "node")
	p := rig.NewPlace(t)
	dropScript(t, p, "py-clock/py-clock.py", "py-clock", "1.0.0", "def wait(request, params):\n", "def wait(request, params):\n    os._exit(7)\n")
	dropScript(t, p, "node-dice/node-dice.cjs", "node-dice", "1.0.0", "\tconst rolled = [];\n", "\tif (dice === 99) process.exit(7);\n\tconst rolled = [];\n")
	h := p.Serve()
	h.Initialize(nil)
	for _, a := range []rig.Answer{
		h.Tool("py-clock__wait", map[string]any{"seconds": 1}),
		h.Tool("node-dice__roll", map[string]any{"dice": 99}),
	} {
		if a.Error == nil || a.Error.Code != -32003 || a.Error.Info().Executed != "unknown" || !strings.Contains(a.Error.Message, "code 7") {
			t.Errorf("answer %s, want -32003 that says unknown and the exit code", a)
		}
	}
	spokenBy(t, h.Tool("py-clock__now", nil))
	spokenBy(t, h.Tool("node-dice__roll", nil))
}

// count is the answer of the counter.
type count struct {
	Count   int64  `json:"count"`
	Version string `json:"version"`
}

// countOf is the zero value, and an error of the test, if it was not the counter that answered.
func countOf(t *testing.T, a rig.Answer) (c count) {
	t.Helper()
	if json.Unmarshal(a.Result, &c) != nil || c.Count == 0 {
		t.Errorf("no answer of the counter: %s", a)
	}
	return c
}

// A number that lives in memory goes on through upgrades, a rollback and a restart.
func TestCounterGoesOn(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Example("counter", "1.0.0")
	h := p.Serve()
	want := int64(0)
	next := func(version string) {
		t.Helper()
		want++
		if c := countOf(t, h.Call("counter.next", nil)); c != (count{want, version}) {
			t.Fatalf("%s counts %d, want %s and %d", c.Version, c.Count, version, want)
		}
	}
	next("1.0.0")
	next("1.0.0")
	p.Example("counter", "1.1.0")
	p.MustCommand("upgrade", "counter")
	next("1.1.0")
	p.MustCommand("restart", "counter")
	next("1.1.0")
	p.MustCommand("rollback", "counter")
	next("1.0.0")
}

// Under load no number is given twice and none is left out.
func TestCounterGoesOnUnderLoad(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Example("counter", "1.0.0")
	h := p.Serve()
	countOf(t, h.Call("counter.next", nil))
	stop := make(chan struct{})
	var callers sync.WaitGroup
	var mu sync.Mutex
	given := []int64{1}
	for range 8 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c := countOf(t, h.Call("counter.next", nil))
				if c.Count == 0 {
					return
				}
				mu.Lock()
				given = append(given, c.Count)
				mu.Unlock()
			}
		})
	}
	for i := range 3 {
		version := fmt.Sprintf("1.%d.0", i+1)
		p.Example("counter", version)
		out := p.MustCommand("upgrade", "counter")
		if !strings.Contains(out.Stdout, "0 calls failed") {
			t.Errorf("the command says\n%s", out)
		}
	}
	close(stop)
	callers.Wait()
	slices.Sort(given)
	for i, n := range given {
		if n != int64(i+1) {
			t.Fatalf("number %d of %d is %d", i+1, len(given), n)
		}
	}
}

var (
	markdownLink = regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`)
	soxCommand   = regexp.MustCompile(`sox-host ([a-z]+)`)
)

// The page for authors names files and commands that there are.
func TestAuthorsPage(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	dir := filepath.Join(rig.ModuleRoot(), "examples")
	raw, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	links := markdownLink.FindAllStringSubmatch(string(raw), -1)
	for _, link := range links {
		if _, err := os.Stat(filepath.Join(dir, link[1])); err != nil {
			t.Errorf("a link leads nowhere: %v", err)
		}
	}
	commands := map[string]bool{}
	for _, block := range strings.Split(string(raw), "```sh\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		for _, command := range soxCommand.FindAllStringSubmatch(block, -1) {
			commands[command[1]] = true
		}
	}
	for command := range commands {
		if out := p.Command("help", command); out.Code != 0 {
			t.Errorf("there is no sox-host %s: %s", command, out)
		}
	}
	if len(links) < 10 || len(commands) < 5 {
		t.Errorf("only %d links and %d commands were found", len(links), len(commands))
	}
}

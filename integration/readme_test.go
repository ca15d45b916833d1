package integration

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

// configBlock is a fenced JSON block of the README.
var configBlock = regexp.MustCompile("(?s)```json\n(.*?)```")

// Every client configuration in the README starts a host that a client can talk to.
func TestReadmeConfigurations(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(filepath.Join(rig.ModuleRoot(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, block := range configBlock.FindAllStringSubmatch(string(readme), -1) {
		var config struct {
			Claude map[string]server `json:"mcpServers"`
			Code   map[string]server `json:"servers"`
		}
		if err := json.Unmarshal([]byte(block[1]), &config); err != nil {
			t.Errorf("a JSON block does not parse: %v\n%s", err, block[1])
			continue
		}
		for _, servers := range []map[string]server{config.Claude, config.Code} {
			for name, s := range servers {
				tried++
				t.Run(name, func(t *testing.T) { s.try(t) })
			}
		}
	}
	if tried < 2 {
		t.Fatalf("only %d configurations were found", tried)
	}
}

// The smallest plugin of the README is a program of under twenty lines, and a plugin.
func TestReadmePlugin(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(filepath.Join(rig.ModuleRoot(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	if len(blocks) != 1 {
		t.Fatalf("%d blocks of Go in the README", len(blocks))
	}
	source := blocks[0][1]
	if n := strings.Count(source, "\n"); n >= 20 {
		t.Errorf("the smallest plugin has %d lines", n)
	}
	p := goPlace(t)
	p.MustCommand("new", "echo", "--replace", rig.ModuleRoot()) // for its go.mod
	p.Write("echo/main.go", source)
	program := filepath.Join(p.Plugins, "echo_v1.0.0")
	for _, args := range [][]string{{"vet", "main.go"}, {"build", "-o", program, "main.go"}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Env, cmd.Dir = p.Environ(), p.Path("echo")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
	h := p.Serve()
	h.Initialize(nil)
	if got := string(h.Tool("echo__say", map[string]any{"text": "hi"}).Tool(t).Structured); got != `{"text":"hi"}` {
		t.Errorf("the tool says %s", got)
	}
	if got := string(h.Call("echo.say", map[string]any{"text": "hi"}).Result); got != `{"text":"hi"}` {
		t.Errorf("the method says %s", got)
	}
}

// promise is a row of the README's promises: number, what is promised, tests, and where they are.
var promise = regexp.MustCompile("(?m)^\\| (\\d+) \\| (.+) \\| (`(?:Test|Fuzz).+`) \\| (`\\..+`) \\|$")

// Every promise of the README names tests that there are, in the packages where it says, and what is not promised is
// listed.
func TestSeed_B23_PromisesAndLimitations(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(filepath.Join(rig.ModuleRoot(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := promise.FindAllStringSubmatch(string(readme), -1)
	if len(rows) < 10 {
		t.Fatalf("only %d promises were found", len(rows))
	}
	for i, row := range rows {
		if row[1] != strconv.Itoa(i+1) {
			t.Errorf("promise %s stands in the place of %d", row[1], i+1)
		}
		// One package for all tests, or one for each group.
		groups, packages := strings.Split(row[3], ";"), strings.Split(row[4], ";")
		if len(groups) != len(packages) {
			t.Errorf("promise %s: %d groups of tests, %d packages", row[1], len(groups), len(packages))
			continue
		}
		for g, group := range groups {
			functions := testFunctions(t, strings.Trim(packages[g], " `"))
			for _, name := range strings.Split(group, ",") {
				name = strings.Trim(name, " `")
				if pattern := regexp.MustCompile("^" + name + "$"); !slices.ContainsFunc(functions, pattern.MatchString) {
					t.Errorf("promise %s: there is no test %s in %s", row[1], name, packages[g])
				}
			}
		}
	}
	_, limits, _ := strings.Cut(string(readme), "\n## Known limitations\n")
	limits, _, _ = strings.Cut(limits, "\n## ")
	if n := strings.Count(limits, "\n- "); n < 5 {
		t.Errorf("only %d known limitations were found", n)
	}
}

// testFunctions are the tests and fuzz targets of a package, written as the go command takes it.
func testFunctions(t *testing.T, pkg string) (names []string) {
	t.Helper()
	root, deep := strings.CutSuffix(pkg, "/...")
	root = filepath.Join(rig.ModuleRoot(), root)
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w*)\(`)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (!deep || entry.Name() == "testdata"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		raw, err := os.ReadFile(path)
		for _, m := range function.FindAllSubmatch(raw, -1) {
			names = append(names, string(m[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

type server struct {
	Command string   `json:"command"`
	Args    []string `json:"args"`
}

// try starts the server as a client would, with sox-host on the PATH, and lists its tools.
func (s server) try(t *testing.T) {
	p := rig.NewPlace(t)
	p.Kit("kit", "1.0.0", stamp.Options{})
	if filepath.Base(s.Command) != "sox-host" {
		t.Fatalf("the command is %q", s.Command)
	}
	cmd := exec.Command(p.HostProgram(), s.Args...)
	cmd.Env = p.Environ()
	client := mcp.NewClient(&mcp.Implementation{Name: "readme", Version: "1"}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tools, err := session.ListTools(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range tools.Tools {
		names = append(names, tool.Name)
	}
	if !strings.Contains(strings.Join(names, " "), "kit__echo") {
		t.Errorf("tools: %v", names)
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
}

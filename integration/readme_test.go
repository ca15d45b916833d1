package integration

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

package integration

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/sox-host/sox-host/integration/internal/rig"
)

const module = "github.com/sox-host/sox-host/"

// layers are the packages from the contract upwards: a package may import its own layer's subpackages and the
// layers named for it. cmd → host → plugin, sdk → plugin, examples → sdk; never the other way.
var layers = map[string][]string{
	"plugin":      {"plugin"},
	"sdk":         {"sdk", "plugin"},
	"host":        {"host", "plugin"},
	"cmd":         {"cmd", "host", "plugin"},
	"examples":    {"examples", "sdk"},
	"integration": {"integration", "host", "sdk", "plugin"},
}

// libraries are what a release may be linked with, by layer. Everything else is the standard library or a test's.
var libraries = map[string][]string{
	"plugin": {"golang.org/x/sys", "github.com/go-json-experiment/json", "github.com/hashicorp/go-hclog"},
	"sdk": {"golang.org/x/sys", "github.com/go-json-experiment/json", "github.com/hashicorp/go-hclog",
		"github.com/google/jsonschema-go"},
	"host": {"golang.org/x/sys", "github.com/go-json-experiment/json", "github.com/hashicorp/go-hclog",
		"github.com/hashicorp/go-multierror", "github.com/hashicorp/go-version", "github.com/fsnotify/fsnotify",
		"github.com/gofrs/flock", "github.com/yosida95/uritemplate"},
	"cmd": {"github.com/hashicorp/go-hclog", "github.com/hashicorp/go-multierror", "github.com/spf13/pflag",
		"github.com/fsnotify/fsnotify", "golang.org/x/sys"},
}

// adapters may import the official MCP library; nothing else of the sdk may, so that a plugin is linked with it only
// when its author asks for it.
var adapters = map[string]bool{"sdk/mcpserver": true}

// The arrows between the packages point one way, and a release is linked with few libraries.
func TestImports(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = rig.ModuleRoot()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := 0
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		packages++
		own := strings.TrimPrefix(p.ImportPath, module)
		layer, _, _ := strings.Cut(own, "/")
		for _, imported := range p.Imports {
			if inner, ok := strings.CutPrefix(imported, module); ok {
				if !within(inner, layers[layer]) {
					t.Errorf("%s imports %s: %s may import %v", own, inner, layer, layers[layer])
				}
				continue
			}
			first, _, _ := strings.Cut(imported, "/")
			if !strings.Contains(first, ".") || layer == "integration" || layer == "examples" {
				continue // the standard library, or nothing that is released as a library
			}
			if strings.HasPrefix(imported, "github.com/modelcontextprotocol/go-sdk") && adapters[own] {
				continue
			}
			if !within(imported, libraries[layer]) {
				t.Errorf("%s imports %s, which is not among the libraries of %s", own, imported, layer)
			}
		}
	}
	if packages < 10 {
		t.Fatalf("only %d packages were looked at", packages)
	}
}

// within reports whether path is one of roots or below it.
func within(path string, roots []string) bool {
	for _, root := range roots {
		if path == root || strings.HasPrefix(path, root+"/") {
			return true
		}
	}
	return false
}

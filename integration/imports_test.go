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
	"plugin": {"golang.org/x/sys", "github.com/go-json-experiment/json"},
	"sdk":    {"golang.org/x/sys", "github.com/go-json-experiment/json"},
	"host": {"golang.org/x/sys", "github.com/go-json-experiment/json", "github.com/hashicorp/go-hclog",
		"github.com/hashicorp/go-multierror", "github.com/hashicorp/go-version", "github.com/fsnotify/fsnotify",
		"github.com/gofrs/flock", "github.com/yosida95/uritemplate"},
	"cmd": {"github.com/hashicorp/go-hclog", "github.com/hashicorp/go-multierror", "github.com/spf13/pflag",
		"github.com/fsnotify/fsnotify", "golang.org/x/sys"},
}

// adapters may import a library that nothing else that is released may, so that a plugin is linked with it, and starts
// as slowly, only when its author asks for it, and the host never.
var adapters = map[string]string{
	"cmd/sox-remote":  "github.com/modelcontextprotocol/go-sdk",
	"sdk/mcpserver":   "github.com/modelcontextprotocol/go-sdk",
	"sdk/inputschema": "github.com/google/jsonschema-go",
}

// heavy is what a program must not be linked with, however indirectly. A client starts the host, often twice, and
// waits; initialising these takes longer than a plugin that uses only the SDK may take to be ready.
var heavy = map[string][]string{
	"cmd/sox-host": {"net/http", "crypto/tls", "github.com/modelcontextprotocol/go-sdk"},
	"examples/echo": {"net", "crypto", "flag", "text/template", "github.com/hashicorp/go-hclog",
		"github.com/google/jsonschema-go"},
}

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
			if library, ok := adapters[own]; ok && within(imported, []string{library}) {
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

func TestProgramsAreLean(t *testing.T) {
	t.Parallel()
	for program, refused := range heavy {
		cmd := exec.Command("go", "list", "-deps", "./"+program)
		cmd.Dir = rig.ModuleRoot()
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		linked := strings.Fields(string(out))
		for _, imported := range linked {
			if within(imported, refused) {
				t.Errorf("%s is linked with %s", program, imported)
			}
		}
		if len(linked) < 50 {
			t.Fatalf("only %d packages of %s were looked at", len(linked), program)
		}
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

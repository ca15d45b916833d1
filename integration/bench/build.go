//go:build linux

package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// hookSource is the debug hook of the benchmark's own build of sox-host.
//
//go:embed hook.go.txt
var hookSource []byte

const module = "github.com/sox-host/sox-host"

// programs are the paths of what is measured.
type programs struct {
	dir                                        string // holds everything; removed at the end
	self, host, hooked, peer, echo, adapt, nai string
	against                                    string // another sox-host, or ""
}

// build compiles everything into a new folder.
func build() (*programs, error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w (run the benchmark inside the module)", err)
	}
	dir, err := os.MkdirTemp("", "sxbench")
	if err != nil {
		return nil, err
	}
	p := &programs{dir: dir}
	if p.self, err = os.Executable(); err != nil {
		return p, err
	}
	overlay, err := p.overlay(strings.TrimSpace(string(root)))
	if err != nil {
		return p, err
	}
	for _, b := range []struct {
		path  *string
		name  string
		pkg   string
		flags []string
	}{
		{&p.host, "sox-host", "cmd/sox-host", nil},
		{&p.hooked, "sox-host-hooked", "cmd/sox-host", []string{"-overlay", overlay}},
		{&p.peer, "peer", "integration/bench/peer", nil},
		{&p.echo, "echo", "integration/bench/echo", nil},
		{&p.adapt, "adapted", "integration/bench/adapted", nil},
		{&p.nai, "naive", "integration/bench/naive", nil},
	} {
		*b.path = filepath.Join(dir, b.name)
		cmd := exec.Command("go", append(append([]string{"build", "-o", *b.path}, b.flags...), module+"/"+b.pkg)...)
		cmd.Dir = strings.TrimSpace(string(root))
		if out, err := cmd.CombinedOutput(); err != nil {
			return p, fmt.Errorf("build %s: %w\n%s", b.pkg, err, out)
		}
	}
	return p, nil
}

// overlay adds the hook to cmd/sox-host without a file there.
func (p *programs) overlay(root string) (string, error) {
	hook, list := filepath.Join(p.dir, "hook.go"), filepath.Join(p.dir, "overlay.json")
	if err := os.WriteFile(hook, hookSource, 0o600); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, "cmd", "sox-host", "benchhook.go"): hook}})
	if err != nil {
		return "", err
	}
	return list, os.WriteFile(list, text, 0o600)
}

// home makes a home with plugins: a map from the plugin's name to its program.
func (p *programs) home(plugins map[string]string) (dir string, err error) {
	if dir, err = os.MkdirTemp(p.dir, "h"); err != nil {
		return "", err
	}
	folder := filepath.Join(dir, "plugins")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return "", err
	}
	for name, program := range plugins {
		b, err := os.ReadFile(program)
		if err != nil {
			return "", err
		}
		file := filepath.Join(folder, name+"_v1.0.0")
		if err := os.WriteFile(file, b, 0o755); err != nil {
			return "", err
		}
		// A file that has just been written might still be being copied: sox-host would wait for it to settle.
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(file, old, old); err != nil {
			return "", err
		}
	}
	return dir, nil
}

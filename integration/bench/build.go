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
)

// hookSource is the debug hook of the benchmark's own build of sox-host.
//
//go:embed hook.go.txt
var hookSource []byte

const module = "github.com/sox-host/sox-host"

// programs are the paths of what is measured.
type programs struct {
	root                            string // of the module
	dir                             string // holds everything; removed at the end
	host, hooked                    string // sox-host, and a build of it with the debug hook
	peer, echo, adapted, naive, web string
	against                         string // another sox-host, or ""
}

// build compiles what every measurement needs into a new folder.
func build() (*programs, error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w (run the benchmark inside the module)", err)
	}
	dir, err := os.MkdirTemp("", "sxbench")
	if err != nil {
		return nil, err
	}
	p := &programs{root: strings.TrimSpace(string(root)), dir: dir}
	overlay, err := p.overlay()
	if err != nil {
		return p, err
	}
	for _, b := range []struct {
		path      *string
		name, pkg string
		flags     []string
	}{
		{&p.host, "sox-host", "cmd/sox-host", nil},
		{&p.hooked, "sox-host-hooked", "cmd/sox-host", []string{"-overlay", overlay}},
		{&p.peer, "peer", "integration/bench/peer", nil},
		{&p.echo, "echo", "integration/bench/echo", nil},
		{&p.adapted, "adapted", "integration/bench/adapted", nil},
		{&p.naive, "naive", "integration/bench/naive", nil},
		{&p.web, "web", "integration/bench/web", nil},
	} {
		if *b.path, err = p.compile(b.name, b.pkg, "", b.flags...); err != nil {
			return p, err
		}
	}
	return p, nil
}

// compile builds one program as the Makefile builds a release: like is compared with like only if nothing is linked
// with the C library. An empty version leaves the program's own.
func (p *programs) compile(name, pkg, version string, flags ...string) (path string, err error) {
	path = filepath.Join(p.dir, name)
	linked := path + ".linked"
	link := "-s -w"
	if version != "" {
		link += " -X main.version=" + version
	}
	args := append([]string{"build", "-trimpath", "-ldflags", link, "-o", linked}, flags...)
	cmd := exec.Command("go", append(args, module+"/"+pkg)...)
	cmd.Dir = p.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return path, install(linked, path)
}

// install copies a program that was just linked, as an installation does and as a home gets its plugins. What the linker
// wrote here and there, the system maps more slowly, as long as it has it in memory, than what was written from front to
// back, and the more of a program is used, the more that is. Of 4 builds each, started in turn 120 times, the bare
// program as linked took 1.08 of the time of its copy, and the SDK plugin 1.17 (medians, linux 6.18/amd64, ext4).
func install(linked, path string) error {
	body, err := os.ReadFile(linked)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, body, 0o700); err != nil {
		return err
	}
	return os.Remove(linked)
}

// overlay adds the hook to cmd/sox-host without a file there.
func (p *programs) overlay() (string, error) {
	hook, list := filepath.Join(p.dir, "hook.go"), filepath.Join(p.dir, "overlay.json")
	if err := os.WriteFile(hook, hookSource, 0o600); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(p.root, "cmd", "sox-host", "benchhook.go"): hook}})
	if err != nil {
		return "", err
	}
	return list, os.WriteFile(list, text, 0o600)
}

//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// installer gets the peers: npm's with the lock file of the folder peers, into a folder that git ignores; Go's into
// the benchmark's own temporary folder. It asks the network only for what is not there yet.
type installer struct {
	p     *programs
	given map[string]string // programs that somebody else has built, by the peer's name

	tried  bool // npm
	npmErr error
}

// command returns how to start a peer.
func (in *installer) command(s peerSpec) ([]string, error) {
	path := in.given[s.name]
	switch {
	case path == "" && s.module != "":
		return in.goProgram(s)
	case s.module != "":
		return []string{path}, nil
	case path == "":
		if !in.tried {
			in.tried, in.npmErr = true, in.npm()
		}
		path = filepath.Join(in.folder(), "node_modules", filepath.FromSlash(s.script))
	}
	if in.npmErr != nil {
		return nil, in.npmErr
	}
	node, err := exec.LookPath("node")
	return []string{node, path}, err
}

// folder has the list of the npm packages, and its lock file.
func (in *installer) folder() string {
	return filepath.Join(in.p.root, "integration", "bench", "peers")
}

// npm installs every package, unless the lock file is older than the last time.
func (in *installer) npm() error {
	lock, err := os.Stat(filepath.Join(in.folder(), "package-lock.json"))
	if err != nil {
		return err
	}
	done := filepath.Join(in.folder(), "node_modules", ".package-lock.json") // npm writes it last
	if installed, err := os.Stat(done); err == nil && !installed.ModTime().Before(lock.ModTime()) {
		return nil
	}
	cmd := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = in.folder()
	return ran(cmd)
}

// goProgram installs a program as a release of sox-host is built.
func (in *installer) goProgram(s peerSpec) ([]string, error) {
	bin := filepath.Join(in.p.dir, "bin-"+s.name)
	cmd := exec.Command("go", "install", "-trimpath", "-ldflags", "-s -w", s.module+"@"+s.version)
	cmd.Dir = in.p.dir // outside of the module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOBIN="+bin)
	return []string{filepath.Join(bin, filepath.Base(s.module))}, ran(cmd)
}

// ran runs a command; its error has the line of its output that says most.
func ran(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err // it could not be started, or nothing is wrong
	}
	what := filepath.Base(cmd.Path) + " " + cmd.Args[1]
	return fmt.Errorf("%s: %s", what, oneLine(telling(string(out))))
}

// telling picks a line of what go or npm printed: what the registry said, else the first line of an error, else the
// last line that is no report of progress.
func telling(output string) string {
	first, last := "", ""
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "go: downloading ") || strings.HasPrefix(line, "npm warn ") || strings.Contains(line, "A complete log of this run"):
			continue
		case strings.HasPrefix(line, "server response: "):
			return line
		case first == "" && strings.HasPrefix(line, "npm error ") && !strings.HasPrefix(line, "npm error code "):
			first = line
		}
		last = line
	}
	if first != "" {
		return first
	}
	return last
}

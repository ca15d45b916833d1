package rig

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// findPython makes python3 the interpreter itself for every program that is started from here on, by a link in dir. What is first on the PATH may be a
// script of a version manager that looks for it each time, which takes ten times as long as the interpreter needs. Where there is none, nothing changes.
func findPython(dir string) error {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	path := strings.TrimSpace(string(out))
	if err != nil || !filepath.IsAbs(path) {
		return nil
	}
	link := filepath.Join(dir, "path", "python3")
	return errors.Join(os.Mkdir(filepath.Dir(link), 0o700), os.Symlink(path, link),
		os.Setenv("PATH", filepath.Dir(link)+string(os.PathListSeparator)+os.Getenv("PATH")))
}

// RunPython runs a script with python3, which the build needs anyway, in the environment of a place.
func RunPython(t testing.TB, p *Place, script string, args ...string) Output {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "python3", append([]string{"-B", script}, args...)...)
	cmd.Env, cmd.Dir = p.environ(), p.Home
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatalf("python3 %s: %v", script, err)
	}
	return Output{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

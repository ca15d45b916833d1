package rig

import (
	"bytes"
	"context"
	"os/exec"
	"testing"
)

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

package rig

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sox-host/sox-host/integration/internal/stamp"
)

// Patience is how long anything may take before a test gives up on it. It is a safety net and not an expectation: what is waited for takes
// milliseconds, except on a machine that does ten other things.
const Patience = 60 * time.Second

// tagVariable marks every process of one Place. Its prefix is one of those that plugins inherit.
const tagVariable = "XDG_SOX_TEST"

// Place is one user's home, with a plugins folder and everything sox-host keeps, for one test. Several hosts can run in it.
type Place struct {
	Home    string // HOME; sox-host's own folder is Home/.sox
	Plugins string // the plugins folder
	t       testing.TB
	tag     string
	env     []string // more variables for hosts and commands
}

// NewPlace makes an empty one. Its path is short, so that sockets fit. It is removed with the test, after what still runs in it was found and ended.
func NewPlace(t testing.TB) *Place {
	t.Helper()
	home, err := os.MkdirTemp("", "sx")
	if err != nil {
		t.Fatal(err)
	}
	p := &Place{Home: home, Plugins: filepath.Join(home, ".sox", "plugins"), t: t, tag: rand.Text()}
	if err := os.MkdirAll(p.Plugins, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.expectNoProcesses("the test")
		if err := os.RemoveAll(home); err != nil {
			t.Errorf("remove the place: %v", err)
		}
	})
	return p
}

// Setenv adds a variable to the environment of hosts and commands started from now on.
func (p *Place) Setenv(name, value string) { p.env = append(p.env, name+"="+value) }

// environ is what an MCP client gives to the servers it starts, and little else.
func (p *Place) environ() []string {
	return append([]string{
		"HOME=" + p.Home, "PATH=" + os.Getenv("PATH"), "USER=" + os.Getenv("USER"), "SHELL=/bin/sh", "TERM=dumb",
		tagVariable + "=" + p.tag,
		"GORACE=halt_on_error=1 exitcode=66 atexit_sleep_ms=0", // else each command takes a second more
	}, p.env...)
}

// File is the path of a plugin's file in the plugins folder.
func (p *Place) File(name, version string) string {
	return filepath.Join(p.Plugins, name+"_v"+version)
}

// Kit drops a kit into the plugins folder, as NAME_vVERSION.
func (p *Place) Kit(name, version string, o stamp.Options) {
	p.t.Helper()
	o.Name, o.Version = name, version
	if err := programs.kitBuild(p.File(name, version), o); err != nil {
		p.t.Fatal(err)
	}
}

// Example drops an example into the plugins folder.
func (p *Place) Example(name, version string) {
	p.t.Helper()
	built, err := programs.Example(name, version)
	if err != nil {
		p.t.Fatal(err)
	}
	p.Copy(built, p.File(name, version))
}

// Copy copies a program.
func (p *Place) Copy(src, dst string) {
	p.t.Helper()
	body, err := os.ReadFile(src)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := stamp.WriteProgram(dst, body); err != nil {
		p.t.Fatal(err)
	}
}

// Program builds a program of the module.
func (p *Place) Program(pkg string) string {
	p.t.Helper()
	path, err := programs.Program(pkg)
	if err != nil {
		p.t.Fatal(err)
	}
	return path
}

// HostProgram is the path of sox-host.
func (p *Place) HostProgram() string {
	p.t.Helper()
	path, err := programs.Host()
	if err != nil {
		p.t.Fatal(err)
	}
	return path
}

// RemoteProgram is the path of sox-remote, beside sox-host from the first call on.
func (p *Place) RemoteProgram() string {
	p.t.Helper()
	path, err := programs.Remote()
	if err != nil {
		p.t.Fatal(err)
	}
	return path
}

// Environ is the environment of this place, for programs that a test starts itself.
func (p *Place) Environ() []string { return p.environ() }

// Settings writes NAME.json.
func (p *Place) Settings(name string, settings any) {
	p.t.Helper()
	raw, err := json.Marshal(settings)
	if err != nil {
		p.t.Fatal(err)
	}
	p.Write(filepath.Join(p.Plugins, name+".json"), string(raw))
}

// Write writes a file as careful editors do, all of it at once; under Home unless the path is absolute.
func (p *Place) Write(path, text string) string {
	p.t.Helper()
	path = p.Path(path)
	part, err := os.CreateTemp(p.Home, "part") // mode 0600
	if err != nil {
		p.t.Fatal(err)
	}
	_, err = part.WriteString(text)
	if err := errors.Join(err, part.Close(), os.Rename(part.Name(), path)); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// Path is a path under Home.
func (p *Place) Path(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(p.Home, path)
}

// Lines are the lines of a file, none if it does not exist.
func (p *Place) Lines(path string) []string {
	p.t.Helper()
	raw, err := os.ReadFile(p.Path(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.t.Fatal(err)
	}
	return strings.FieldsFunc(string(raw), func(r rune) bool { return r == '\n' })
}

// Output is what a command said and how it ended.
type Output struct {
	Code   int
	Stdout string
	Stderr string
}

func (o Output) String() string { return o.Stdout + o.Stderr }

// Command runs sox-host with a command, to its end.
func (p *Place) Command(args ...string) Output {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.HostProgram(), args...)
	cmd.Env, cmd.Dir = p.environ(), p.Home
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = Patience
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Errorf("sox-host %s: %v", strings.Join(args, " "), err)
	}
	return Output{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// MustCommand is Command for what has to succeed.
func (p *Place) MustCommand(args ...string) Output {
	p.t.Helper()
	out := p.Command(args...)
	if out.Code != 0 {
		p.t.Fatalf("sox-host %s: exit code %d\n%s", strings.Join(args, " "), out.Code, out)
	}
	return out
}

// JSON runs a command with --json and decodes its result.
func JSON[T any](p *Place, args ...string) (T, Output) {
	p.t.Helper()
	out := p.Command(append(args, "--json")...)
	var v T
	if err := json.Unmarshal([]byte(out.Stdout), &v); err != nil {
		p.t.Errorf("sox-host %s --json: %v\n%s", strings.Join(args, " "), err, out)
	}
	return v, out
}

// Processes are those that were started in this place and still run.
func (p *Place) Processes() []Process { return tagged(tagVariable + "=" + p.tag) }

// expectNoProcesses waits for the last process of the place to end, and ends those that do not.
func (p *Place) expectNoProcesses(after string) {
	p.t.Helper()
	if p.await("no process left", func() bool { return len(p.Processes()) == 0 }, exitBound) {
		return
	}
	for _, left := range p.Processes() {
		p.t.Errorf("after %s there is still %s", after, left)
		left.kill()
	}
	p.await("killed processes gone", func() bool { return len(p.Processes()) == 0 }, exitBound)
}

// exitBound is how long processes may take to go once they should. A host promises 2 s; a machine with two busy cores needs more to keep it.
const exitBound = 20 * time.Second

// Await waits until something outside of the client's sight is true, such as the content of a file.
func (p *Place) Await(what string, holds func() bool) {
	p.t.Helper()
	if !p.await(what, holds, Patience) {
		p.t.Fatalf("waited in vain: %s", what)
	}
}

func (p *Place) await(_ string, holds func() bool, bound time.Duration) bool {
	deadline := time.NewTimer(bound)
	defer deadline.Stop()
	poll := time.NewTimer(0)
	defer poll.Stop()
	// To ask is to run a command or to look through all processes, for some: what takes long is asked for less often.
	for pause := 2 * time.Millisecond; !holds(); pause = min(pause*5/4, 50*time.Millisecond) {
		poll.Reset(pause)
		select {
		case <-poll.C:
		case <-deadline.C:
			return holds()
		}
	}
	return true // asked once more it may be over again
}

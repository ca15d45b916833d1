//go:build unix

package sdk_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sox-host/sox-host/plugin/socket"
	"github.com/sox-host/sox-host/plugin/wire"
	"github.com/sox-host/sox-host/sdk"
	"github.com/sox-host/sox-host/sdk/sdktest"
)

// The test binary is also the plugin that these tests start, and that plugin's child.
const (
	envRole = "SDK_TEST_ROLE"
	// fastExit spares the second that the race detector waits at exit.
	fastExit = "GORACE=atexit_sleep_ms=0"
)

func TestMain(m *testing.M) {
	switch os.Getenv(envRole) {
	case "plugin":
		sdk.Main(processPlugin())
	case "sockets": // prints how many sockets it inherited
		n := 0
		for fd := 3; fd < 32; fd++ {
			var st unix.Stat_t
			if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK {
				n++
			}
		}
		fmt.Print(n)
	default:
		os.Exit(m.Run())
	}
}

func processPlugin() *sdk.Plugin {
	early, fd1 := os.Stdout, os.NewFile(1, "fd 1") // kept: a file that nobody has is closed
	p := sdk.New("proc", "1.0.0")
	sdk.Method(p, "proc.env", func(context.Context, empty) ([]string, error) {
		var names []string
		for _, entry := range os.Environ() {
			if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "SOX_") || strings.HasPrefix(name, "LISTEN_") {
				names = append(names, name)
			}
		}
		return names, nil
	}, sdk.ReadOnly())
	sdk.Method(p, "proc.sockets", func(context.Context, empty) (string, error) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), envRole+"=sockets")
		out, err := cmd.Output()
		return string(out), err
	}, sdk.ReadOnly())
	sdk.Method(p, "proc.print", func(context.Context, empty) (empty, error) {
		fmt.Println("printed by fmt")
		fmt.Fprintln(early, "printed by an old os.Stdout")
		cmd := exec.Command("echo", "printed by a child")
		cmd.Stdout = fd1
		return empty{}, cmd.Run()
	}, sdk.ReadOnly())
	sdk.Method(p, "proc.write", say)
	sdk.Method(p, "proc.collect", func(context.Context, empty) (empty, error) {
		for range 3 { // files that nobody has are closed by then
			runtime.GC()
		}
		return empty{}, nil
	})
	sdk.Method(p, "proc.block", block)
	return p
}

// process is a started plugin.
type process struct {
	cmd            *exec.Cmd
	stdin          io.WriteCloser
	stdout, stderr bytes.Buffer
	exited         chan struct{} // closed when code is set
	code           int
}

// launch starts this binary as the plugin with further variables, files as descriptors from 3 on, and arguments.
func launch(t *testing.T, env []string, files []*os.File, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // a safety net only
	p := &process{cmd: exec.CommandContext(ctx, os.Args[0], args...), exited: make(chan struct{})}
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "SOX_") && !strings.HasPrefix(entry, "LISTEN_") {
			p.cmd.Env = append(p.cmd.Env, entry)
		}
	}
	p.cmd.Env = append(append(p.cmd.Env, envRole+"=plugin", fastExit), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.ExtraFiles = files
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process
		defer close(p.exited)
		_ = p.cmd.Wait()
		p.code = p.cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() { cancel(); <-p.exited })
	return p
}

// wantExit waits for the end of the process.
func (p *process) wantExit(t *testing.T, code int) {
	t.Helper()
	<-p.exited
	if p.code != code {
		t.Errorf("exit code %d, want %d; stderr: %s", p.code, code, p.stderr.String())
	}
}

// launchConnected starts the plugin with one end of a socketpair, as a host does.
func launchConnected(t *testing.T, env ...string) (*process, *sdktest.Host) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	ours, theirs := os.NewFile(uintptr(fds[0]), "host"), os.NewFile(uintptr(fds[1]), "plugin")
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		t.Fatal(err)
	}
	p := launch(t, append(env, wire.EnvFD+"=3", wire.EnvProtocols+"=1-1", wire.EnvName+"=proc"), []*os.File{theirs})
	theirs.Close()
	return p, sdktest.Attach(t, conn)
}

func TestProcessOverADescriptor(t *testing.T) {
	p, h := launchConnected(t)
	if err := h.Ready().Check("proc", "1.0.0"); err != nil {
		t.Error(err)
	}
	s := h.Open()
	if raw, err := s.Call("proc.env", nil); err != nil || string(raw) != "null" {
		t.Errorf("variables that a child would inherit: %s, %v", raw, err)
	}
	if raw, err := s.Call("proc.sockets", nil); err != nil || string(raw) != `"0"` {
		t.Errorf("sockets that a child inherited: %s, %v", raw, err)
	}
	h.Send(`{"jsonrpc":"2.0","method":"sox/shutdown"}`)
	h.Wait("bye", func(f sdktest.Frame) bool { return string(f.Method()) == wire.MethodBye })
	p.wantExit(t, 0)
}

func TestSeed_A5_stdout_is_only_protocol_and_stderr_for_people(t *testing.T) {
	t.Run("under_a_host", func(t *testing.T) {
		p, h := launchConnected(t)
		if _, err := h.Root().Call("proc.print", nil); err != nil {
			t.Error(err)
		}
		h.Shutdown()
		p.wantExit(t, 0)
		if p.stdout.Len() > 0 || strings.Count(p.stderr.String(), "printed by") != 3 {
			t.Errorf("stdout %q, stderr %q", p.stdout.String(), p.stderr.String())
		}
	})
	t.Run("by_hand", func(t *testing.T) {
		p := launch(t, nil, nil)
		fmt.Fprintln(p.stdin, `{"jsonrpc":"2.0","id":1,"method":"proc.print"}`)
		p.stdin.Close()
		p.wantExit(t, 0)
		if got := p.stdout.String(); got != `{"jsonrpc":"2.0","id":1,"result":{}}`+"\n" {
			t.Errorf("stdout %q", got)
		}
		if strings.Count(p.stderr.String(), "printed by") != 3 {
			t.Errorf("stderr %q", p.stderr.String())
		}
	})
}

func TestSeed_A6_plugin_ends_when_its_host_dies(t *testing.T) {
	p, h := launchConnected(t)
	id := h.Root().Start("proc.block", nil, `"ack":true`) // busy
	h.Wait("ack", func(f sdktest.Frame) bool { return f.Kind == wire.Ack && string(f.AckID()) == fmt.Sprint(id) })
	h.Close() // what the kernel does when the host is killed
	p.wantExit(t, 0)
}

func TestSeed_C8_signals_stop_a_process_in_order(t *testing.T) {
	for _, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		t.Run(sig.String(), func(t *testing.T) {
			p, h := launchConnected(t)
			id := h.Root().Start("proc.block", nil, `"ack":true`)
			h.Wait("ack", func(f sdktest.Frame) bool { return f.Kind == wire.Ack })
			if err := p.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_, err := h.Answer(id).Value()
			wantCode(t, err, wire.CodeOutcomeUnknown, wire.ExecutedUnknown)
			h.Wait("bye", func(f sdktest.Frame) bool { return string(f.Method()) == wire.MethodBye })
			p.wantExit(t, 0)
		})
	}
}

func TestSeed_C10_read_only_by_flag_and_by_environment(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) *process{
		"flag":        func(t *testing.T) *process { return launch(t, nil, nil, "--read-only") },
		"environment": func(t *testing.T) *process { return launch(t, []string{sdk.EnvReadOnly + "=1"}, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t)
			fmt.Fprintln(p.stdin, `{"jsonrpc":"2.0","id":1,"method":"proc.write","params":{"text":"x"}}`)
			p.stdin.Close()
			p.wantExit(t, 0)
			if !strings.Contains(p.stdout.String(), "-32007") {
				t.Errorf("stdout %q", p.stdout.String())
			}
		})
	}
}

func TestMainFlags(t *testing.T) {
	for _, tt := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{[]string{"--version"}, 0, "proc 1.0.0\n", ""},
		{[]string{"--help"}, 0, " --name proc --version 1.0.0 --start\n", ""},
		{[]string{"--no-such"}, 2, "", "proc: unexpected argument \"--no-such\"\nrun "},
		{[]string{"surplus"}, 2, "", " --help to see what it takes\n"},
	} {
		t.Run(strings.Join(tt.args, "_"), func(t *testing.T) {
			p := launch(t, nil, nil, tt.args...)
			p.wantExit(t, tt.code)
			if out, errs := p.stdout.String(), p.stderr.String(); !strings.Contains(out, tt.stdout) || !strings.Contains(errs, tt.stderr) || tt.stdout == "" && out != "" || strings.Count(errs, "\n") > 2 {
				t.Errorf("stdout %q, stderr %q", out, errs)
			}
		})
	}
}

func TestStartFailsWithOneClearError(t *testing.T) {
	for name, env := range map[string][]string{
		"descriptor_is_no_number": {wire.EnvFD + "=x"},
		"descriptor_is_closed":    {wire.EnvFD + "=77"},
		"listener_is_no_socket":   {wire.EnvListenFD + "=0"},
		"path_is_relative":        {wire.EnvSocket + "=here.sock"},
		"foreign_protocols":       {wire.EnvFD + "=77", wire.EnvProtocols + "=2-3"},
		"protocols_are_no_range":  {wire.EnvFD + "=77", wire.EnvProtocols + "=one"},
	} {
		t.Run(name, func(t *testing.T) {
			p := launch(t, env, nil)
			p.wantExit(t, 1)
			if lines := strings.Split(strings.TrimSpace(p.stderr.String()), "\n"); len(lines) != 1 || !json.Valid([]byte(lines[0])) {
				t.Errorf("stderr %q", p.stderr.String())
			}
		})
	}
}

// shortDir is a private folder whose path fits a socket address.
func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "sox")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func dial(t *testing.T, path string) *sdktest.Host {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	return sdktest.Attach(t, conn)
}

func TestSeed_B6_serves_an_inherited_listening_socket(t *testing.T) {
	for _, tt := range []struct {
		name   string
		launch func(t *testing.T, f *os.File) *process
	}{
		{"SOX_PLUGIN_LISTEN_FD", func(t *testing.T, f *os.File) *process {
			return launch(t, []string{wire.EnvListenFD + "=3"}, []*os.File{f})
		}},
		{"LISTEN_FDS", func(t *testing.T, f *os.File) *process {
			p := &process{exited: make(chan struct{})}
			// The variable has to name the process itself, whose number is known only once it runs.
			p.cmd = exec.Command("/bin/sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec "$0"`, os.Args[0])
			p.cmd.Env = append(os.Environ(), envRole+"=plugin", fastExit)
			p.cmd.ExtraFiles = []*os.File{f}
			p.cmd.Stderr = &p.stderr
			if err := p.cmd.Start(); err != nil {
				t.Fatal(err)
			}
			go func() { // ends with the process
				defer close(p.exited)
				_ = p.cmd.Wait()
				p.code = p.cmd.ProcessState.ExitCode()
			}()
			t.Cleanup(func() { _ = p.cmd.Process.Kill(); <-p.exited })
			return p
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(shortDir(t), "s")
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			f, err := l.(*net.UnixListener).File()
			if err != nil {
				t.Fatal(err)
			}
			p := tt.launch(t, f)
			f.Close()
			a, b := dial(t, path), dial(t, path)
			for _, h := range []*sdktest.Host{a, b} {
				if err := h.Ready().Check("proc", "1.0.0"); err != nil {
					t.Error(err)
				}
			}
			a.Close() // one host goes away; the others stay
			if raw, err := b.Root().Call("proc.env", nil); err != nil || string(raw) != "null" {
				t.Errorf("after another host left: %s, %v", raw, err)
			}
			b.Send(`{"jsonrpc":"2.0","method":"sox/shutdown"}`)
			b.Wait("bye", func(f sdktest.Frame) bool { return string(f.Method()) == wire.MethodBye })
			p.wantExit(t, 0)
		})
	}
}

func TestProcessListensAtAPath(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	p := launch(t, []string{wire.EnvSocket + "=" + path, sdk.EnvLogLevel + "=debug"}, nil)
	h := dialWhenThere(t, p, path)
	h.Ready()
	p2 := launch(t, []string{wire.EnvSocket + "=" + path}, nil)
	p2.wantExit(t, 1) // the socket is served already, and left alone
	if _, err := h.Root().Call("proc.env", nil); err != nil {
		t.Error(err)
	}
	h.Send(`{"jsonrpc":"2.0","method":"sox/shutdown"}`)
	p.wantExit(t, 0)
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

func TestProcessAdoptsTheLifeLockItWasStartedWith(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	lock, err := socket.TryLock(socket.LockPath(path))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	refused := launch(t, []string{wire.EnvSocket + "=" + path}, nil)
	refused.wantExit(t, 1) // somebody else, the test, holds the lock
	p := launch(t, []string{wire.EnvSocket + "=" + path, sdk.EnvLockFD + "=3"}, []*os.File{lock.File()})
	h := dialWhenThere(t, p, path)
	h.Ready()
	lock.Close()
	if _, err := h.Root().Call("proc.collect", nil); err != nil {
		t.Error(err)
	}
	if _, err := socket.TryLock(socket.LockPath(path)); !errors.Is(err, socket.ErrLocked) {
		t.Errorf("the lock of a plugin that serves: %v", err)
	}
	h.Send(`{"jsonrpc":"2.0","method":"sox/shutdown"}`)
	p.wantExit(t, 0)
}

// Nobody ends a plugin that a host started for all: it ends itself, connections or not.
func TestProcessRetiresAsItsUserWants(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	p := launch(t, []string{wire.EnvSocket + "=" + path, wire.EnvIdleMS + "=300"}, nil)
	h := dialWhenThere(t, p, path)
	h.Ready()
	h.Wait("bye", func(f sdktest.Frame) bool { return string(f.Method()) == wire.MethodBye })
	p.wantExit(t, 0)
	launch(t, []string{wire.EnvSocket + "=" + path, wire.EnvIdleMS + "=soon"}, nil).wantExit(t, 1)
}

// dialWhenThere dials until the plugin listens, or has ended.
func dialWhenThere(t *testing.T, p *process, path string) *sdktest.Host {
	t.Helper()
	for {
		conn, err := net.Dial("unix", path)
		if err == nil {
			return sdktest.Attach(t, conn)
		}
		select {
		case <-p.exited:
			t.Fatalf("it ended: %s", p.stderr.String())
		case <-time.After(time.Millisecond):
		}
	}
}

func TestByHandOverPipesLogsToStderr(t *testing.T) {
	p := launch(t, nil, nil)
	fmt.Fprintln(p.stdin, `garbage`)
	p.stdin.Close()
	p.wantExit(t, 0)
	if p.stdout.Len() > 0 {
		t.Errorf("stdout %q", p.stdout.String())
	}
	lines := bufio.NewScanner(&p.stderr)
	var levels []string
	for lines.Scan() {
		var entry map[string]any
		if err := json.Unmarshal(lines.Bytes(), &entry); err != nil {
			t.Errorf("log line %q: %v", lines.Text(), err)
		}
		levels = append(levels, fmt.Sprint(entry["level"]))
	}
	if want := []string{"WARN"}; !slices.Equal(levels, want) {
		t.Errorf("levels %v, want %v", levels, want)
	}
}

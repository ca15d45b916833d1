package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sox-host/sox-host/host"
	"github.com/sox-host/sox-host/sdk"
)

// safetyNet ends a script whose host never does what it waits for.
const safetyNet = 3 * time.Minute

func TestMain(m *testing.M) {
	switch {
	case os.Getenv("SOX_PLUGIN_FD") != "":
		testPlugin()
		os.Exit(0)
	case len(os.Args) > 1 && os.Args[1] == host.GuardCommand:
		main()
	case filepath.Base(os.Args[0]) == "sox-remote": // a copy that a script has made
		fakeServer()
		os.Exit(0)
	}
	testscript.Main(m, map[string]func(){"sox-host": main, "npx": fakeServer, "uvx": fakeServer, "fake-server": fakeServer})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup:               setUpScript,
		Condition: func(condition string) (bool, error) {
			if condition == "plugins" { // whether this system can run any
				return runtime.GOOS == "linux" || runtime.GOOS == "darwin", nil
			}
			return false, fmt.Errorf("unknown condition %q", condition)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":   exitsCommand,
			"plugin":  pluginCommand,
			"program": programCommand,
			"settle":  settleCommand,
			"serve":   serveScript,
			"tree":    treeCommand,
			"damage":  damageCommand,
			"modes":   modesCommand,
			"stale":   staleCommand,
		},
	})
}

// testKey is the key of the test in the values of its script.
type testKey struct{}

// setUpScript gives each script a home of its own, private whatever the umask.
func setUpScript(env *testscript.Env) error {
	home := filepath.Join(env.WorkDir, "home")
	plugins := filepath.Join(home, "plugins")
	if err := os.MkdirAll(plugins, 0o700); err != nil {
		return err
	}
	for _, dir := range []string{env.WorkDir, home, plugins} {
		if err := os.Chmod(dir, 0o700); err != nil {
			return err
		}
	}
	env.Values[testKey{}] = env.T()
	env.Setenv("SOX_HOME", home)
	env.Setenv("PLUGINS", plugins)
	env.Setenv("SYSTEM", "_"+runtime.GOOS+"_"+runtime.GOARCH) // what the name of a file for it alone ends with
	env.Setenv("GORACE", "atexit_sleep_ms=0")                 // else each command takes a second more under the race detector
	return nil
}

// exitsCommand runs a program and expects an exit code, which the help of a command of sox-host has to name:
// exits CODE PROGRAM ARG...
func exitsCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
	if args[1] != "sox-host" || len(args) < 3 {
		return
	}
	if cmd := find(commands(), args[2]); cmd != nil && !slices.Contains(cmd.exits, host.Exit(got)) {
		ts.Fatalf("the help of %s does not name exit code %d", cmd.name, got)
	}
}

// pluginCommand drops this test's own binary as a plugin: plugin NAME VERSION. See testPlugin for what it does.
func pluginCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: plugin NAME VERSION")
	}
	path := filepath.Join(ts.Getenv("PLUGINS"), args[0]+"_v"+args[1])
	copySelf(ts, path, "")
	settle(ts, path)
}

// programCommand writes this test's own binary to a file, with bytes behind it that make it another build:
// program FILE [BYTES].
func programCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: program FILE [BYTES]")
	}
	copySelf(ts, ts.MkAbs(args[0]), strings.Join(args[1:], ""))
}

func copySelf(ts *testscript.TestScript, path, suffix string) {
	self, err := os.Executable()
	ts.Check(err)
	source, err := os.Open(self)
	ts.Check(err)
	defer source.Close()
	target, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o700)
	ts.Check(err)
	_, err = io.Copy(target, io.MultiReader(source, strings.NewReader(suffix)))
	ts.Check(errors.Join(err, target.Close()))
}

// settleCommand makes files look as if they had been there for a while: settle FILE...
func settleCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("usage: settle FILE...")
	}
	for _, path := range args {
		ts.Check(os.Chmod(ts.MkAbs(path), 0o600))
		settle(ts, ts.MkAbs(path))
	}
}

func settle(ts *testscript.TestScript, path string) {
	past := time.Now().Add(-time.Minute)
	ts.Check(os.Chtimes(path, past, past))
}

// serveScript starts a host with a client that lists the tools once: serve ARG... The host ends with the script.
func serveScript(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("usage: serve ARG...")
	}
	cmd := exec.Command("sox-host", append([]string{"serve"}, args...)...)
	cmd.Path = lookIn(ts.Getenv("PATH"), "sox-host")
	cmd.Env = []string{"PATH=" + ts.Getenv("PATH"), "HOME=" + ts.Getenv("HOME"), "SOX_HOME=" + ts.Getenv("SOX_HOME")}
	cmd.Dir = ts.Getenv("WORK")
	cmd.WaitDelay = time.Second
	stdin, err := cmd.StdinPipe()
	ts.Check(err)
	stdout, err := cmd.StdoutPipe()
	ts.Check(err)
	var logs strings.Builder
	cmd.Stderr = &logs
	ts.Check(cmd.Start())
	killer := time.AfterFunc(safetyNet, func() { _ = cmd.Process.Kill() })
	ts.Defer(func() {
		stdin.Close()
		_, _ = io.Copy(io.Discard, stdout)
		err := cmd.Wait()
		killer.Stop()
		if err != nil {
			ts.Logf("serve: %v\n%s", err, logs.String())
			ts.Value(testKey{}).(testscript.T).FailNow() // Fatalf is for the script's own commands only
		}
	})
	_, err = io.WriteString(stdin, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"script","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
`)
	ts.Check(err)
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			ts.Fatalf("serve ended before it listed the tools: %v", err)
		}
		if strings.Contains(line, `"id":2`) {
			break
		}
	}
	// The control socket is made behind the first request; a command must not come before it.
	hosts, _ := strconv.Atoi(ts.Getenv("HOSTS")) // not set before the first
	hosts++
	ts.Setenv("HOSTS", strconv.Itoa(hosts))
	run := filepath.Join(ts.Getenv("SOX_HOME"), "run")
	for deadline := time.Now().Add(safetyNet); ; {
		found, err := filepath.Glob(filepath.Join(run, "*.sock"))
		ts.Check(err)
		if len(found) == hosts {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("serve made no control socket")
		}
		runtime.Gosched()
	}
}

func lookIn(path, name string) string {
	for _, dir := range filepath.SplitList(path) {
		if file := filepath.Join(dir, name); isFile(file) {
			return file
		}
	}
	return name
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// treeCommand writes what lies under a folder, with sizes and times, to a file: tree FOLDER FILE. Two of them are
// compared with cmp to show that nothing was written in between.
func treeCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: tree FOLDER FILE")
	}
	var b strings.Builder
	ts.Check(filepath.Walk(ts.MkAbs(args[0]), func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %s %d %s\n", path, info.Mode(), info.Size(), info.ModTime().Format(time.RFC3339Nano))
		return nil
	}))
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(b.String()), 0o600))
}

// damageCommand flips the last byte of every file under a folder that has any: damage FOLDER.
func damageCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: damage FOLDER")
	}
	ts.Check(filepath.Walk(ts.MkAbs(args[0]), func(path string, info os.FileInfo, err error) error {
		if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		data[len(data)-1] ^= 1
		return errors.Join(os.Chmod(path, 0o700), os.WriteFile(path, data, 0o700))
	}))
}

// modesCommand prints the modes of files: modes FILE...
func modesCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("usage: modes FILE...")
	}
	for _, path := range args {
		info, err := os.Lstat(ts.MkAbs(path))
		ts.Check(err)
		fmt.Fprintln(ts.Stdout(), info.Mode())
	}
}

// staleCommand leaves the socket of a host that was killed: stale FILE.
func staleCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: stale FILE")
	}
	l, err := net.Listen("unix", ts.MkAbs(args[0]))
	ts.Check(err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	ts.Check(l.Close())
}

// fakeServer is an MCP server as clients start it, by the name of a program that fetches one. Its tool tells how it
// was started.
func fakeServer() {
	type start struct {
		Args   []string `json:"args"`
		Env    []string `json:"env"`
		Folder string   `json:"folder"`
	}
	args := os.Args[1:]
	os.Args = os.Args[:1]   // they are the server's and not the library's
	environ := os.Environ() // before the library takes its own out
	p := sdk.New("fake", "1.0.0")
	sdk.Tool(p, "started", "How it was started.", func(context.Context, struct{}) (start, error) {
		folder, err := os.Getwd()
		s := start{Args: args, Folder: folder}
		for _, entry := range environ {
			if strings.HasPrefix(entry, "FAKE_") || strings.HasPrefix(entry, "SOX_REMOTE_") || strings.HasPrefix(entry, "SOX_PLUGIN_NAME=") || strings.HasPrefix(entry, "MCP_") || strings.HasPrefix(entry, "HTTPS_PROXY=") {
				s.Env = append(s.Env, entry)
			}
		}
		slices.Sort(s.Env)
		return s, err
	}, sdk.ReadOnly())
	sdk.Main(p)
}

var fileName = regexp.MustCompile(`^([a-z][a-z0-9-]*)_v(.+)$`)

// testPlugin is the test binary as a plugin. Its name and version are those of its file; the version also says how
// it behaves: 1.x has the tool say and the method NAME.say, 1.3 and later also shout, 2.x has shout alone, 8.x says that
// it is 8.9.9, 9.x ends before it is ready.
func testPlugin() {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	m := fileName.FindStringSubmatch(filepath.Base(path))
	if m == nil {
		panic("not started from a plugin file: " + path)
	}
	name, version := m[1], m[2]
	if strings.HasPrefix(version, "8.") {
		version = "8.9.9"
	}
	if strings.HasPrefix(version, "9.") {
		fmt.Fprintln(os.Stderr, "this build is broken")
		os.Exit(3)
	}
	type text struct {
		Text string `json:"text"`
	}
	fmt.Fprintf(os.Stderr, "%s %s starts\n", name, version)
	say := func(_ context.Context, in text) (text, error) {
		if in.Text == "fail" {
			return in, errors.New("told to fail")
		}
		return in, nil
	}
	p := sdk.New(name, version)
	if strings.HasPrefix(version, "1.") {
		sdk.Tool(p, "say", "Say the text back.", say, sdk.ReadOnly())
		sdk.Method(p, name+".say", say)
	}
	if !strings.HasPrefix(version, "1.2.") {
		sdk.Tool(p, "shout", "Say the text back, loud.", func(_ context.Context, in text) (text, error) {
			return text{strings.ToUpper(in.Text)}, nil
		}, sdk.ReadOnly())
	}
	sdk.Main(p)
}

//go:build unix

package integration

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

// A secret in the host's environment reaches the plugin whose settings name it and nobody else: no other plugin, no
// command line, no log, no command's output, and no file.
func TestSecretIsForWhoNamesIt(t *testing.T) {
	t.Parallel()
	const secret = "s3cret-of-the-host"
	p := rig.NewPlace(t)
	p.Setenv("SERVICE_TOKEN", secret)
	p.Kit("named", "1.0.0", stamp.Options{})
	p.Kit("other", "1.0.0", stamp.Options{})
	p.Settings("named", map[string]any{"env_allow": []string{"SERVICE_TOKEN"}, "env": map[string]string{"EMPTY": "", "USER": "somebody"}})
	h := p.Serve("--log-level", "trace")
	h.Initialize(nil)
	callable(t, p, h, "named")
	callable(t, p, h, "other")
	env := func(plugin, name string) rig.Kit {
		t.Helper()
		return h.Tool(plugin+"__env", map[string]any{"name": name}).Kit(t)
	}
	if k := env("named", "SERVICE_TOKEN"); k.Value != secret {
		t.Errorf("the plugin that names it has %q", k.Value)
	}
	if k := env("other", "SERVICE_TOKEN"); k.Set {
		t.Errorf("another plugin has it: %q", k.Value)
	}
	for name, want := range map[string]string{"EMPTY": "", "USER": "somebody", "HOME": p.Home} {
		if k := env("named", name); !k.Set || k.Value != want {
			t.Errorf("%s is %q (set: %t), want %q", name, k.Value, k.Set, want)
		}
	}
	h.Tool("named__crash", map[string]any{"when": "before"}) // what is said of a crash has no secrets either
	callable(t, p, h, "named")

	shown := map[string]string{"the log of the host": h.Log()}
	for _, process := range p.Processes() {
		shown["the command line of "+process.String()] = process.Command
	}
	for _, command := range [][]string{{"status"}, {"status", "--json"}, {"logs", "named"}, {"info", "named", "--json"}, {"list", "--json"}, {"doctor"}} {
		shown["sox-host "+strings.Join(command, " ")] = p.Command(command...).String()
	}
	h.Close() // which writes its last files
	walk(t, filepath.Join(p.Home, ".sox"), func(path string, raw []byte) { shown[path] = string(raw) })
	for where, text := range shown {
		if strings.Contains(text, secret) {
			t.Errorf("the secret is in %s", where)
		}
	}
}

// Whatever lies in the plugins folder: only plugins are executed, nothing else holds a host or a command up, none of it
// hides a plugin, and what could have been meant as one has its reason.
func TestStrangeFilesInThePluginsFolder(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Kit("kit", "1.0.0", stamp.Options{})
	trap := "#!/bin/sh\necho \"$0\" >> " + p.Path("executed") + "\n"
	past := time.Now().Add(-time.Hour)
	drop := func(path string, mode os.FileMode) {
		t.Helper()
		p.Write(path, trap)
		if err := errors.Join(os.Chmod(path, mode), os.Chtimes(path, past, past)); err != nil {
			t.Fatal(err)
		}
	}
	inside := func(name string) string { return filepath.Join(p.Plugins, name) }
	for _, name := range []string{
		"README.md", "kit_v9.0.0.tar.gz", "kit_v9.0.0~", "kit_v9.0.0.part", ".kit_v9.0.0", ".kit_v9.0.0.swp", "lost_v1.0.0.sha256", "run-me", "kit",
		"Kit_v9.0.0", "kit_v9", "kit_v9.0.0_plan9_386",
	} {
		drop(inside(name), 0o755)
	}
	drop(inside("loose_v1.0.0"), 0o777)
	drop(p.Path("outside"), 0o755)
	socket, err := net.Listen("unix", p.Path("s"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if err := errors.Join(
		os.Rename(p.Path("s"), inside("sock_v1.0.0")),
		syscall.Mkfifo(inside("fifo_v1.0.0"), 0o755), syscall.Mkfifo(inside("fifo.json"), 0o600),
		os.Mkdir(inside("folder_v1.0.0"), 0o700),
		os.Symlink("nothing", inside("dangling_v1.0.0")), os.Symlink(p.Path("outside"), inside("out_v1.0.0")),
	); err != nil {
		t.Fatal(err)
	}

	h := p.Serve("--list-wait", "10m")
	h.Initialize(nil)
	tools := h.Tools()
	if !slices.Contains(tools, "kit__echo") || slices.ContainsFunc(tools, func(name string) bool { return !strings.HasPrefix(name, "kit__") }) {
		t.Errorf("tools: %v", tools)
	}
	callable(t, p, h, "kit")
	for _, name := range []string{"loose", "sock", "fifo", "folder", "dangling", "out"} {
		if a := h.Call(name+".echo", nil); a.Error == nil {
			t.Errorf("%s answers: %s", name, a)
		}
	}
	list := p.MustCommand("list").Stdout
	for _, part := range []string{
		"chmod go-w " + inside("loose_v1.0.0"), "named pipe", "socket", "folder", inside("out_v1.0.0"), p.Path("outside"), "plan9/386", "no such file",
	} {
		if !strings.Contains(list, part) {
			t.Errorf("the list does not say %q:\n%s", part, list)
		}
	}
	// None of them is held up, whatever they find wrong.
	for _, command := range [][]string{{"upgrade", "--all"}, {"verify"}, {"doctor"}, {"tools"}, {"info", "fifo"}, {"upgrade", "out"}} {
		if out := p.Command(command...); out.Code < 0 {
			t.Errorf("sox-host %s did not end:\n%s", strings.Join(command, " "), out)
		}
	}
	if lines := p.Lines("executed"); len(lines) > 0 {
		t.Errorf("executed: %v", lines)
	}
	if v := h.Tool("kit__echo", nil).Kit(t).Version; v != "1.0.0" {
		t.Errorf("%s is active", v)
	}
}

// A home with a name longer than any socket's, no folder for temporary files, and a plugins folder that nobody may
// write in: everything works.
func TestNarrowPlace(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Home = filepath.Join(p.Home, strings.Repeat("h", 200))
	p.Plugins = filepath.Join(p.Home, ".sox", "plugins")
	if err := os.MkdirAll(p.Plugins, 0o700); err != nil {
		t.Fatal(err)
	}
	p.Setenv("TMPDIR", p.Path("nowhere"))
	p.Kit("kit", "1.0.0", stamp.Options{})
	h := p.Serve()
	h.Initialize(nil)
	callable(t, p, h, "kit")
	p.Kit("kit", "1.1.0", stamp.Options{Extra: 1})
	chmod(t, p.Plugins, 0o500)
	t.Cleanup(func() { _ = os.Chmod(p.Plugins, 0o700) }) // so that it can be removed
	if pid := statusOf(t, p, "kit").PID; pid != h.Tool("kit__echo", nil).Kit(t).PID {
		t.Errorf("status says process %d", pid)
	}
	if out := p.Command("upgrade", "kit", "--dry-run", "--exit-code"); out.Code != 10 {
		t.Errorf("a dry run: exit code %d, want 10\n%s", out.Code, out)
	}
	p.MustCommand("upgrade", "kit", "--settle", "0")
	h.AwaitMessages("notifications/tools/list_changed", 1)
	if v := h.Tool("kit__extra_0", nil).Kit(t).Version; v != "1.1.0" {
		t.Errorf("after the upgrade %s answers", v)
	}
	h.Close()
	if out := p.Command("upgrade", "kit", "--to", "1.0.0", "--allow-breaking", "--allow-downgrade", "--dry-run", "--exit-code"); out.Code != 10 {
		t.Errorf("a dry run without a host: exit code %d, want 10\n%s", out.Code, out)
	}
	p.MustCommand("rollback", "kit")
	if v := p.Serve().Call("kit.echo", nil).Kit(t).Version; v != "1.0.0" {
		t.Errorf("after the rollback %s answers", v)
	}
}

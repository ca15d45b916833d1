package integration

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

// kitBeside is a running host with a kit of version 1.0.0 that is active, in a legacy session.
func kitBeside(t *testing.T, o stamp.Options, args ...string) (*rig.Place, *rig.Host) {
	t.Helper()
	p := rig.NewPlace(t)
	p.Kit("kit", "1.0.0", o)
	h := p.Serve(args...)
	h.Initialize(nil)
	callable(t, p, h, "kit")
	return p, h
}

// hold starts n calls that wait for the file "release", and returns when all of them run.
func hold(t *testing.T, p *rig.Place, h *rig.Host, n int) []*rig.Future {
	t.Helper()
	before := len(p.Lines("held"))
	calls := make([]*rig.Future, n)
	for i := range calls {
		calls[i] = h.StartTool("kit__hold", map[string]any{"file": p.Path("held"), "nonce": fmt.Sprint("h", before+i), "until": p.Path("release")})
	}
	p.Await("the calls are running", func() bool { return len(p.Lines("held")) == before+n })
	return calls
}

// goCommand runs a command beside the test.
func goCommand(p *rig.Place, args ...string) <-chan rig.Output {
	done := make(chan rig.Output, 1)
	go func() { done <- p.Command(args...) }()
	return done
}

// awaitVersion calls until the kit answers with a version.
func awaitVersion(t *testing.T, p *rig.Place, h *rig.Host, version string) {
	t.Helper()
	p.Await("version "+version, func() bool { return h.Tool("kit__echo", nil).Kit(t).Version == version })
}

// One pipe, two versions: the client says nothing and opens nothing again.
func TestUpgradeWhileThePipeStays(t *testing.T) {
	t.Parallel()
	p, h := kitBeside(t, stamp.Options{})
	if v := h.Tool("kit__echo", nil).Kit(t).Version; v != "1.0.0" {
		t.Errorf("before: %s", v)
	}
	p.Kit("kit", "1.1.0", stamp.Options{})
	out := p.MustCommand("upgrade", "kit")
	if !strings.Contains(out.Stdout, "1.0.0 -> 1.1.0") {
		t.Errorf("the command says\n%s", out)
	}
	if v := h.Tool("kit__echo", nil).Kit(t).Version; v != "1.1.0" {
		t.Errorf("after: %s", v)
	}
	if v := h.Call("kit.echo", nil).Kit(t).Version; v != "1.1.0" {
		t.Errorf("a plain method after: %s", v)
	}
	p.MustCommand("rollback", "kit")
	if v := h.Tool("kit__echo", nil).Kit(t).Version; v != "1.0.0" {
		t.Errorf("after the rollback: %s", v)
	}
	if again := p.MustCommand("upgrade", "kit", "--to", "1.0.0"); !strings.Contains(again.String(), "1.0.0") {
		t.Errorf("an upgrade to the active version says\n%s", again)
	}
}

// Calls in flight are finished by the version that began them, however many new ones the other version answers meanwhile.
func TestUpgradeDrainsWhatIsInFlight(t *testing.T) {
	t.Parallel()
	p, h := kitBeside(t, stamp.Options{})
	first := hold(t, p, h, 50)
	p.Kit("kit", "1.1.0", stamp.Options{})
	upgrade := goCommand(p, "upgrade", "kit")
	awaitVersion(t, p, h, "1.1.0")
	second := make([]*rig.Future, 50)
	for i := range second {
		second[i] = h.StartTool("kit__echo", map[string]any{"n": i})
	}
	for _, f := range second {
		if v := f.Wait().Kit(t).Version; v != "1.1.0" {
			t.Errorf("a call after the cutover was answered by %s", v)
		}
	}
	for _, f := range first {
		if f.Answered() {
			t.Errorf("a call was answered before it was done: %s", f.Wait())
		}
	}
	p.Write("release", "")
	for _, f := range first {
		if v := f.Wait().Kit(t).Version; v != "1.0.0" {
			t.Errorf("a call begun by 1.0.0 was answered by %s", v)
		}
	}
	// The call by which awaitVersion asks may have been with the old version too.
	out := <-upgrade
	if out.Code != 0 || !strings.Contains(out.Stdout, "drained 50 calls") && !strings.Contains(out.Stdout, "drained 51 calls") {
		t.Errorf("the command ends with %d and does not tell of the 50 calls:\n%s", out.Code, out)
	}
	if n := len(p.Lines("held")); n != 50 {
		t.Errorf("%d executions of 50 calls", n)
	}
}

// What is not done when the drain limit passes gets one error each, which says that it may have run.
func TestDrainLimit(t *testing.T) {
	t.Parallel()
	p, h := kitBeside(t, stamp.Options{})
	calls := hold(t, p, h, 50)
	p.Kit("kit", "1.1.0", stamp.Options{})
	p.MustCommand("upgrade", "kit", "--drain-timeout", "100ms")
	for _, f := range calls {
		a := f.Wait()
		expectUnknown(t, a)
		if a.Error != nil && !strings.Contains(a.Error.Message, "may have run") {
			t.Errorf("the message does not say that it may have run: %s", a)
		}
	}
	if v := h.Tool("kit__echo", nil).Kit(t).Version; v != "1.1.0" {
		t.Errorf("afterwards %s is active", v)
	}
	if n := len(p.Lines("held")); n != 50 {
		t.Errorf("%d executions of 50 calls", n)
	}
}

// expectUnknown wants the error of a call that may have run.
func expectUnknown(t *testing.T, a rig.Answer) {
	t.Helper()
	if a.Error == nil || a.Error.Code != -32003 || a.Error.Info().Executed != "unknown" || !strings.HasPrefix(a.Error.Info().Plugin, "kit") {
		t.Errorf("answer %s, want -32003 that says unknown", a)
	}
}

// Every generation is introduced to the session as a server of its own would be; the client hears of it once.
func TestFiveUpgradesOneInitialize(t *testing.T) {
	t.Parallel()
	p, h := kitBeside(t, stamp.Options{})
	for i := 1; i <= 5; i++ {
		version := fmt.Sprintf("1.%d.0", i)
		p.Kit("kit", version, stamp.Options{})
		p.MustCommand("upgrade", "kit")
		k := h.Tool("kit__seen", nil).Kit(t)
		if k.Version != version || len(k.Methods) < 3 || k.Methods[0] != "initialize" || k.Methods[1] != "notifications/initialized" {
			t.Errorf("%s saw %v, want initialize, then initialized, then others", k.Version, k.Methods)
		}
	}
	// That the id of initialize appears once on stdout is checked for every host.
}

// A version that does not work is never seen by the client: the old process stays, no call is lost, no list changes, and the command says which step
// failed and why.
func TestBadVersions(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]struct {
		options stamp.Options
		prepare func(t *testing.T, p *rig.Place)
		args    []string
		says    []string // each in what the command prints
	}{
		"hangs_at_start":    {options: stamp.Options{BootHang: true}, args: []string{"--timeout", "2s"}, says: []string{"2s", "time limit"}},
		"exits_at_start":    {options: stamp.Options{BootExit: 7, BootSays: "no database here"}, says: []string{"7", "no database here"}},
		"lists_broken":      {options: stamp.Options{List: stamp.ListBroken}, says: []string{"list", "tools"}},
		"lists_a_bad_tool":  {options: stamp.Options{List: stamp.ListBadTool}, says: []string{"list", "bad", "inputSchema"}},
		"exits_after_list":  {options: stamp.Options{ExitAfterList: true}, says: []string{"exit"}},
		"another_version":   {options: stamp.Options{Says: "9.9.9"}, says: []string{"9.9.9", "1.1.0"}},
		"removes_a_tool":    {options: stamp.Options{List: stamp.ListToolRemoved}, says: []string{"sleep", "--allow-breaking"}},
		"requires_more":     {options: stamp.Options{List: stamp.ListRequired}, says: []string{"loud", "--allow-breaking"}},
		"is_not_executable": {prepare: func(t *testing.T, p *rig.Place) { chmod(t, p.File("kit", "1.1.0"), 0o600) }, says: []string{"executable"}},
		"is_no_program":     {prepare: func(t *testing.T, p *rig.Place) { p.Write(p.File("kit", "1.1.0"), "hello") }, says: []string{"kit_v1.1.0"}},
		"is_pinned":         {prepare: func(t *testing.T, p *rig.Place) { p.MustCommand("pin", "kit") }, says: []string{"pin"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, h := kitBeside(t, stamp.Options{})
			tools := h.Tools()
			pid := h.Tool("kit__echo", nil).Kit(t).PID
			held := hold(t, p, h, 3)
			p.Kit("kit", "1.1.0", bad.options)
			if bad.prepare != nil {
				bad.prepare(t, p)
			}
			state := p.MustCommand("status", "--json").Stdout
			stop := load(t, h)
			out := p.Command(append([]string{"upgrade", "kit", "--to", "1.1.0"}, bad.args...)...)
			stop()
			if out.Code == 0 {
				t.Errorf("the command succeeds:\n%s", out)
			}
			for _, text := range bad.says {
				if !strings.Contains(out.String(), text) {
					t.Errorf("the command (exit code %d) does not say %q:\n%s", out.Code, text, out)
				}
			}
			p.Write("release", "")
			for _, f := range held {
				if k := f.Wait().Kit(t); k.PID != pid {
					t.Errorf("a call in flight was answered by another process")
				}
			}
			if k := h.Tool("kit__echo", nil).Kit(t); k.PID != pid || k.Version != "1.0.0" {
				t.Errorf("afterwards version %s answers, pid %d, before it was %d", k.Version, k.PID, pid)
			}
			if now := h.Tools(); !slices.Equal(now, tools) {
				t.Errorf("the list has changed: %v, before %v", now, tools)
			}
			if n := len(h.Messages("notifications/tools/list_changed")); n != 0 {
				t.Errorf("%d list_changed", n)
			}
			if name == "is_pinned" {
				return
			}
			// The next start runs what was active.
			h.Close()
			h = p.Serve()
			if v := h.Call("kit.echo", nil).Kit(t).Version; v != "1.0.0" {
				t.Errorf("the next host runs %s; its state was\n%s", v, state)
			}
		})
	}
}

// load keeps calling in the background. The returned function ends it; a call that fails fails the test.
func load(t *testing.T, h *rig.Host) (stop func()) {
	t.Helper()
	ended := make(chan struct{})
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-ended:
					return
				default:
				}
				a := h.StartTool("kit__echo", map[string]any{"n": n}).Wait()
				if a.Error != nil || a.Closed {
					t.Errorf("a call during the upgrade: %s", a)
					return
				}
			}
		})
	}
	return func() { close(ended); workers.Wait() }
}

// A version that crashes soon after the cutover is taken back by itself, to the very process that was there before. The
// command fails and says why, and no call is lost.
func TestCrashInProbationRollsBack(t *testing.T) {
	t.Parallel()
	p, h := kitBeside(t, stamp.Options{})
	pid := h.Tool("kit__echo", nil).Kit(t).PID
	held := hold(t, p, h, 3)
	p.Kit("kit", "1.1.0", stamp.Options{CrashAfterListMS: 1000})
	stop := load(t, h)
	out := p.Command("upgrade", "kit")
	p.Await("1.0.0 is back", func() bool {
		a := h.Tool("kit__echo", nil)
		return a.Kit(t).Version == "1.0.0" && len(statusOf(t, p, "kit").LastRollback) > 0
	})
	stop()
	if out.Code == 0 {
		t.Errorf("the command succeeds:\n%s", out)
	}
	for _, text := range []string{"probation", "rolled back to 1.0.0", "code 5", "kit: crash as planned"} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("the command does not say %q:\n%s", text, out)
		}
	}
	p.Write("release", "")
	for _, f := range append(held, h.StartTool("kit__echo", nil)) {
		if k := f.Wait().Kit(t); k.PID != pid {
			t.Errorf("answered by process %d of %s, not by %d", k.PID, k.Version, pid)
		}
	}
	if n := len(p.Lines("held")); n != 3 {
		t.Errorf("%d executions of 3 calls", n)
	}
	if v := statusOf(t, p, "kit").Version; v != "1.0.0" {
		t.Errorf("status says %s; the command had said\n%s", v, out)
	}
	if n := len(h.Messages("notifications/tools/list_changed")); n != 0 {
		t.Errorf("%d list_changed for equal lists", n)
	}
	h.Close()
	h = p.Serve()
	if v := h.Call("kit.echo", nil).Kit(t).Version; v != "1.0.0" {
		t.Errorf("the next host runs %s", v)
	}
}

// list_changed comes exactly when the list means something else.
func TestNotices(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options stamp.Options
		want    int
	}{
		"property_added":      {stamp.Options{List: stamp.ListExtraProperty}, 1},
		"tool_added":          {stamp.Options{List: stamp.ListExtraTool}, 1},
		"description_changed": {stamp.Options{List: stamp.ListDescribed}, 1},
		"keys_reordered":      {stamp.Options{List: stamp.ListReordered}, 0},
		"nothing_changed":     {stamp.Options{}, 0},
		"shouted_20_times":    {stamp.Options{Shout: 20}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, h := kitBeside(t, stamp.Options{})
			p.Kit("kit", "1.1.0", c.options)
			p.MustCommand("upgrade", "kit")
			// One more upgrade, with a notice that has to come after any that the first one has caused.
			p.Kit("kit", "1.2.0", stamp.Options{Extra: 1})
			p.MustCommand("upgrade", "kit", "--allow-breaking")
			h.AwaitMessages("notifications/tools/list_changed", c.want+1)
			h.Call("ping", nil)
			if n := len(h.Messages("notifications/tools/list_changed")); n != c.want+1 {
				t.Errorf("%d list_changed for two upgrades, want %d", n, c.want+1)
			}
		})
	}
}

// Whoever hears list_changed finds the new tool in the list, and can call it.
func TestNewToolIsThereWithTheNotice(t *testing.T) {
	t.Parallel()
	const rounds = 5 // a thousand on a virtual clock: TestToolIsThereWithItsNotice of the gateway
	p, h := kitBeside(t, stamp.Options{})
	h.Tools()
	for i := 1; i <= rounds; i++ {
		p.Kit("kit", fmt.Sprintf("1.%d.0", i), stamp.Options{Extra: i})
		upgrade := goCommand(p, "upgrade", "kit", "--settle", "0")
		h.AwaitMessages("notifications/tools/list_changed", i)
		name := fmt.Sprintf("kit__extra_%d", i-1)
		call := h.StartTool(name, nil)
		if tools := h.Tools(); !slices.Contains(tools, name) {
			t.Errorf("round %d: %s is not in the list: %v", i, name, tools)
		}
		if k := call.Wait().Kit(t); k.Version != fmt.Sprintf("1.%d.0", i) {
			t.Errorf("round %d: answered by %s", i, k.Version)
		}
		if out := <-upgrade; out.Code != 0 {
			t.Fatalf("round %d: exit code %d\n%s", i, out.Code, out)
		}
	}
}

// A call to a tool that an upgrade removed gets a text that a model can act on.
func TestRemovedTool(t *testing.T) {
	t.Parallel()
	p, h := kitBeside(t, stamp.Options{})
	p.Kit("kit", "1.1.0", stamp.Options{List: stamp.ListToolRemoved})
	p.MustCommand("upgrade", "kit", "--allow-breaking")
	h.AwaitMessages("notifications/tools/list_changed", 1)
	r := h.Tool("kit__sleep", map[string]any{"ms": 1}).Tool(t)
	if !r.IsError || len(r.Content) == 0 {
		t.Fatalf("result %+v", r)
	}
	for _, text := range []string{"kit", "1.1.0", "kit__echo"} {
		if !strings.Contains(r.Content[0].Text, text) {
			t.Errorf("the text does not name %q: %s", text, r.Content[0].Text)
		}
	}
}

// What is hashed is what runs: bytes that change in the plugins folder wait for an upgrade.
func TestFileIsOverwritten(t *testing.T) {
	t.Parallel()
	for name, overwrite := range map[string]func(t *testing.T, p *rig.Place){
		"in_place": func(t *testing.T, p *rig.Place) {
			p.Kit("kit", "9.0.0", stamp.Options{Says: "1.0.0", Extra: 1})
			overwriteInPlace(t, p.File("kit", "9.0.0"), p.File("kit", "1.0.0"))
		},
		"by_rename": func(_ *testing.T, p *rig.Place) { p.Kit("kit", "1.0.0", stamp.Options{Extra: 1}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, h := kitBeside(t, stamp.Options{})
			before := len(h.Tools())
			overwrite(t, p)
			pid := h.Tool("kit__echo", nil).Kit(t).PID
			h.Tool("kit__crash", map[string]any{"when": "before"})
			if k := h.Tool("kit__echo", nil).Kit(t); k.PID == pid {
				t.Error("the plugin did not end")
			}
			if n := len(h.Tools()); n != before {
				t.Errorf("after a restart there are %d tools, before %d: other bytes run", n, before)
			}
			out := p.MustCommand("upgrade", "kit", "--to", "1.0.0")
			h.AwaitMessages("notifications/tools/list_changed", 1)
			if n := len(h.Tools()); n != before+1 {
				t.Errorf("after the upgrade to the new bytes there are %d tools, want %d\n%s", n, before+1, out)
			}
		})
	}
}

// A plugin that must be alone: without the setting the upgrade fails and names it, with it calls wait and none fails.
func TestExclusivePlugin(t *testing.T) {
	t.Parallel()
	t.Run("without_the_setting", func(t *testing.T) {
		t.Parallel()
		p := rig.NewPlace(t)
		o := stamp.Options{LockFile: p.Path("lock")}
		p.Kit("kit", "1.0.0", o)
		h := p.Serve()
		h.Call("kit.echo", nil).Kit(t)
		p.Kit("kit", "1.1.0", o)
		out := p.Command("upgrade", "kit")
		if out.Code == 0 || !strings.Contains(out.String(), "exclusive") || !strings.Contains(out.String(), "another instance") {
			t.Errorf("exit code %d, want a failure that names the setting exclusive and what the plugin said:\n%s", out.Code, out)
		}
		if v := h.Call("kit.echo", nil).Kit(t).Version; v != "1.0.0" {
			t.Errorf("afterwards %s is active", v)
		}
	})
	for name, declare := range map[string]func(p *rig.Place, o *stamp.Options){
		"by_the_settings": func(p *rig.Place, _ *stamp.Options) { p.Settings("kit", map[string]any{"exclusive": true}) },
		"by_the_plugin":   func(_ *rig.Place, o *stamp.Options) { o.Exclusive = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := rig.NewPlace(t)
			o := stamp.Options{LockFile: p.Path("lock")}
			declare(p, &o)
			p.Kit("kit", "1.0.0", o)
			h := p.Serve()
			h.Initialize(nil)
			h.Tool("kit__echo", nil).Kit(t)
			p.Kit("kit", "1.1.0", o)
			stop := load(t, h)
			out := p.Command("upgrade", "kit")
			stop()
			if v := h.Tool("kit__echo", nil).Kit(t).Version; out.Code != 0 || v != "1.1.0" {
				t.Errorf("exit code %d, version %s\n%s", out.Code, v, out)
			}
		})
	}
}

// One plugin of four that cannot be upgraded does not keep the others.
func TestUpgradeAll(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	names := []string{"alpha", "beta", "gamma", "delta"}
	for _, name := range names {
		p.Kit(name, "1.0.0", stamp.Options{})
	}
	h := p.Serve()
	for _, name := range names {
		h.Call(name+".echo", nil).Kit(t)
		o := stamp.Options{}
		if name == "gamma" {
			o.BootExit, o.BootSays = 3, "out of cheese"
		}
		p.Kit(name, "1.1.0", o)
	}
	out := p.Command("upgrade", "--all")
	if out.Code != 8 || !strings.Contains(out.String(), "out of cheese") {
		t.Errorf("exit code %d, want 8, and the reason why gamma was not upgraded:\n%s", out.Code, out)
	}
	for _, name := range names {
		want := "1.1.0"
		if name == "gamma" {
			want = "1.0.0"
		}
		if v := h.Call(name+".echo", nil).Kit(t).Version; v != want {
			t.Errorf("%s is at %s, want %s", name, v, want)
		}
	}
}

// Commands that come at once do not tear anything: each succeeds or says that another one is at work.
func TestEightCommandsAtOnce(t *testing.T) {
	t.Parallel()
	p, h := kitBeside(t, stamp.Options{})
	p.Kit("kit", "1.1.0", stamp.Options{})
	p.Kit("kit", "1.2.0", stamp.Options{})
	built := p.Path("kit_v1.2.0")
	if err := os.Rename(p.File("kit", "1.2.0"), built); err != nil {
		t.Fatal(err)
	}
	stop := load(t, h)
	var running []<-chan rig.Output
	for range 4 {
		running = append(running, goCommand(p, "upgrade", "kit"), goCommand(p, "install", built))
	}
	done := 0
	for _, c := range running {
		out := <-c
		switch out.Code {
		case 0:
			done++
		case 9:
		default:
			t.Errorf("exit code %d\n%s", out.Code, out)
		}
	}
	stop()
	if done == 0 {
		t.Error("no command succeeded")
	}
	expectWholeState(t, p)
	p.MustCommand("install", built) // each of the four may have come while another command was at work
	files, err := os.ReadDir(p.Plugins)
	if err != nil || len(files) != 3 { // the three versions, and nothing half-way
		t.Errorf("in the plugins folder there is %v, %v", files, err)
	}
	p.MustCommand("upgrade", "kit", "--settle", "0")
	if v := h.Tool("kit__echo", nil).Kit(t).Version; v != "1.2.0" {
		t.Errorf("after one more upgrade %s is active", v)
	}
}

// The host is killed in the middle of an upgrade: the next one runs a whole, committed version.
func TestHostKilledDuringUpgrade(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options stamp.Options
		moment  func(t *testing.T, p *rig.Place, h *rig.Host)
		want    string
	}{
		"while_the_new_version_starts": {
			stamp.Options{BootMark: "booted", BootUntil: "/nonexistent"},
			func(t *testing.T, p *rig.Place, _ *rig.Host) {
				p.Await("the new version runs", func() bool { return len(p.Lines("booted")) == 1 })
			},
			"1.0.0",
		},
		"while_the_old_version_drains": {
			stamp.Options{},
			func(t *testing.T, p *rig.Place, h *rig.Host) { awaitVersion(t, p, h, "1.1.0") },
			"1.1.0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, h := kitBeside(t, stamp.Options{})
			hold(t, p, h, 3)
			if c.options.BootMark != "" {
				c.options.BootMark = p.Path(c.options.BootMark)
			}
			p.Kit("kit", "1.1.0", c.options)
			upgrade := goCommand(p, "upgrade", "kit", "--timeout", "1m")
			c.moment(t, p, h)
			h.Kill()
			<-upgrade
			p.Await("everything that the host started is gone", func() bool { return len(p.Processes()) == 0 })
			h = p.Serve()
			if v := h.Call("kit.echo", nil).Kit(t).Version; v != c.want {
				t.Errorf("the next host runs %s, want %s", v, c.want)
			}
			expectWholeState(t, p)
			if n := len(p.Lines("held")); n != 3 {
				t.Errorf("%d executions of 3 calls", n)
			}
		})
	}
}

// A constraint that is written while the host runs holds for the next upgrade, as the list of versions shows it.
func TestConstraintActsAtOnce(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Kit("kit", "1.0.0", stamp.Options{})
	h := p.Serve()
	h.Initialize(nil)
	h.Tool("kit__echo", nil).Kit(t)
	p.Kit("kit", "1.1.0", stamp.Options{})
	p.Kit("kit", "2.0.0", stamp.Options{})
	p.Settings("kit", map[string]any{"constraint": "< 2"})
	p.MustCommand("upgrade", "kit", "--settle", "0")
	if v := h.Tool("kit__echo", nil).Kit(t).Version; v != "1.1.0" {
		t.Errorf("the upgrade went to %s", v)
	}
	p.Settings("kit", map[string]any{})
	p.MustCommand("upgrade", "kit", "--settle", "0")
	if v := h.Tool("kit__echo", nil).Kit(t).Version; v != "2.0.0" {
		t.Errorf("without the constraint it went to %s", v)
	}
}

// Without a running host the candidate is tried by the command itself, and is what the next host runs.
func TestUpgradeWithoutHost(t *testing.T) {
	t.Parallel()
	p, h := kitBeside(t, stamp.Options{})
	h.Close()
	p.Kit("kit", "1.1.0", stamp.Options{})
	out := p.MustCommand("upgrade", "kit")
	if !strings.Contains(out.String(), "no host") && !strings.Contains(out.String(), "no running host") {
		t.Errorf("the command does not say that no host was running:\n%s", out)
	}
	h = p.Serve()
	if v := h.Call("kit.echo", nil).Kit(t).Version; v != "1.1.0" {
		t.Errorf("the next host runs %s", v)
	}
	h.Close()
	p.Kit("kit", "1.2.0", stamp.Options{BootExit: 3, BootSays: "out of cheese"})
	if out := p.Command("upgrade", "kit"); out.Code == 0 || !strings.Contains(out.String(), "out of cheese") {
		t.Errorf("a broken version: exit code %d\n%s", out.Code, out)
	}
}

// State handed from one version to the next.
func TestSnapshotMovesState(t *testing.T) {
	t.Parallel()
	p, h := kitBeside(t, stamp.Options{Snapshot: true})
	for range 3 {
		h.Tool("kit__count", nil)
	}
	p.Kit("kit", "1.1.0", stamp.Options{Snapshot: true})
	p.MustCommand("upgrade", "kit")
	if k := h.Tool("kit__count", nil).Kit(t); k.Count != 4 || k.Version != "1.1.0" {
		t.Errorf("%s counts %d, want 4", k.Version, k.Count)
	}
}

// A dry run says what would happen and changes nothing.
func TestDryRun(t *testing.T) {
	t.Parallel()
	p, h := kitBeside(t, stamp.Options{})
	p.Kit("kit", "1.1.0", stamp.Options{Extra: 1})
	before := treeHash(t, p)
	out := p.Command("upgrade", "kit", "--dry-run", "--exit-code")
	if out.Code != 10 || !strings.Contains(out.String(), "1.1.0") {
		t.Errorf("exit code %d, want 10\n%s", out.Code, out)
	}
	if after := treeHash(t, p); after != before {
		t.Error("the dry run changed files")
	}
	if v := h.Tool("kit__echo", nil).Kit(t).Version; v != "1.0.0" {
		t.Errorf("afterwards %s is active", v)
	}
	p.Kit("kit", "1.2.0", stamp.Options{BootExit: 3})
	if out := p.Command("upgrade", "kit", "--dry-run"); out.Code != 1 {
		t.Errorf("a dry run of a broken version: exit code %d, want 1\n%s", out.Code, out)
	}
}

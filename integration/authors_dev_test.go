package integration

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sox-host/sox-host/integration/internal/rig"
)

// make dev-bench sets both to 50.
var (
	devSaves = flag.Int("dev.saves", 10, "saves of sox-host dev under load")
	devTimed = flag.Int("dev.timed", 2, "saves of sox-host dev whose time is printed")
)

// devEvent is one line of sox-host dev --json.
type devEvent struct {
	Event   string `json:"event"`
	Version string `json:"version"`
	Error   string `json:"error"`
	Result  struct {
		Error  string `json:"error"`
		Report struct {
			Failed  int      `json:"failed"`
			Unknown int      `json:"unknown"`
			Changes []string `json:"changes"`
		} `json:"report"`
	} `json:"result"`
}

// devRun is a running sox-host dev.
type devRun struct {
	t      *testing.T
	cmd    *exec.Cmd
	log    strings.Builder // its stderr, to be read after its end
	events chan devEvent   // closed at its end
}

func startDev(t *testing.T, p *rig.Place, args ...string) *devRun {
	t.Helper()
	d := &devRun{t: t, cmd: exec.Command(p.HostProgram(), append([]string{"dev", "--json"}, args...)...), events: make(chan devEvent, 100)}
	d.cmd.Env, d.cmd.Dir = p.Environ(), p.Home
	d.cmd.Stderr = &d.log
	stdout, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Ends with the command, which end or the cleanup ends.
	go func() {
		defer close(d.events)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var e devEvent
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				t.Errorf("a line of dev --json is %q: %v", lines.Bytes(), err)
			}
			d.events <- e
		}
	}()
	t.Cleanup(func() {
		if d.cmd.ProcessState == nil {
			_ = d.cmd.Process.Kill()
			_ = d.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("dev says\n%s", d.log.String())
		}
	})
	return d
}

// next waits for an event.
func (d *devRun) next(event string) devEvent {
	d.t.Helper()
	select {
	case e, ok := <-d.events:
		if !ok || e.Event != event {
			d.t.Fatalf("dev says %+v, want %s", e, event)
		}
		return e
	case <-time.After(rig.Patience):
		d.t.Fatalf("dev says nothing, want %s", event)
	}
	return devEvent{}
}

// end stops it as Ctrl-C does.
func (d *devRun) end() devEvent {
	d.t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGINT); err != nil {
		d.t.Fatal(err)
	}
	e := d.next("ended")
	if err := d.cmd.Wait(); err != nil {
		d.t.Errorf("dev ends with %v", err)
	}
	return e
}

// pluginFiles are the entries of the plugins folder.
func pluginFiles(t *testing.T, p *rig.Place) []string {
	t.Helper()
	entries, err := os.ReadDir(p.Plugins)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// scriptBuild is a build without a compiler: it stamps a script with the version, and fails on purpose if the script says so.
const scriptBuild = `sh -c 'if grep -q "^broken" source.py; then echo "source.py:1: broken" >&2; exit 1; fi; sed "s/^VERSION = .*/VERSION = \"$SOX_DEV_VERSION\"/" source.py > "$SOX_DEV_OUT" && chmod +x "$SOX_DEV_OUT"'`

// Saves while calls are always under way: each becomes what serves, and no call fails. What does not build or start
// changes nothing. In the end everything is as before.
func TestDevUnderLoad(t *testing.T) {
	t.Parallel()
	interpreter(t, "python3")
	saves := max(*devSaves, 8) // some of them are bad
	p := rig.NewPlace(t)
	dropScript(t, p, "py-clock/py-clock.py", "py-clock", "1.0.0")
	h := p.Serve()
	h.Initialize(nil)
	spokenBy(t, h.Tool("py-clock__now", nil))

	original, err := os.ReadFile(filepath.Join(rig.ModuleRoot(), "examples", "py-clock", "py-clock.py"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(p.Path("src"), 0o700); err != nil {
		t.Fatal(err)
	}
	save := func(change string) { p.Write("src/source.py", string(original)+"\n"+change+"\n") }
	save("# nothing yet")
	d := startDev(t, p, "src", "--name", "py-clock", "--build", scriptBuild, "--settle", "0s")
	if e := d.next("upgraded"); e.Version != "1.0.1-dev.1" {
		t.Errorf("the first build is %s", e.Version)
	}

	stop := make(chan struct{})
	var callers sync.WaitGroup
	var mu sync.Mutex
	answered := map[string]int{}
	for i := range 4 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				method, params := "clock.wait", any(map[string]any{"seconds": 0.05}) // no read: nothing of this could be repeated
				if i%2 == 0 {
					method, params = "tools/call", rig.ToolCall("py-clock__now", nil)
				}
				s := spokenBy(t, h.Request(method, params).Wait())
				if s.Clock == "" {
					return
				}
				mu.Lock()
				answered[s.Clock]++
				mu.Unlock()
			}
		})
	}
	for n := range saves {
		save(fmt.Sprint("# save ", n))
		e := d.next("upgraded")
		if e.Result.Report.Failed != 0 || e.Result.Report.Unknown != 0 {
			t.Errorf("%s: %+v", e.Version, e.Result.Report)
		}
		if s := spokenBy(t, h.Call("clock.now", nil)); s.Clock != "py-clock "+e.Version {
			t.Errorf("after %s was there, %q answers", e.Version, s.Clock)
		}
		switch n {
		case 3:
			save("broken")
			if e := d.next("failed"); !strings.Contains(e.Error, "not built") {
				t.Errorf("a save that does not build: %+v", e)
			}
		case 6:
			p.Write("src/source.py", strings.Replace(string(original), "def main():\n", "def main():\n    sys.exit('out of order')\n", 1))
			if e := d.next("failed"); !strings.Contains(e.Result.Error, "out of order") {
				t.Errorf("a save that does not start: %+v", e)
			}
		}
	}
	close(stop)
	callers.Wait()
	if len(answered) < saves/2 {
		t.Errorf("answers came from %v", answered)
	}
	if e := d.end(); e.Version != "1.0.0" || e.Error != "" {
		t.Errorf("at the end: %+v", e)
	}
	if s := spokenBy(t, h.Call("clock.now", nil)); s.Clock != "py-clock 1.0.0" {
		t.Errorf("after the end %q answers", s.Clock)
	}
	if got := pluginFiles(t, p); !slices.Equal(got, []string{"py-clock.json", "py-clock_v1.0.0"}) {
		t.Errorf("left in the plugins folder: %v", got)
	}
	if log := d.log.String(); !strings.Contains(log, "source.py:1: broken") {
		t.Errorf("the output of the compiler is not shown:\n%s", log)
	}
	if n := len(h.Messages("notifications/tools/list_changed")); n != 0 {
		t.Errorf("%d notices of lists that did not change", n)
	}
}

// What others do to the plugin while dev runs is above its next build, and what it goes back to. Another dev of it is
// refused until this one ends, however that is.
func TestDevBesideOthers(t *testing.T) {
	t.Parallel()
	interpreter(t, "python3")
	p := rig.NewPlace(t)
	p.Settings("py-clock", map[string]any{"start_timeout": rig.Patience.String()})
	original, err := os.ReadFile(filepath.Join(rig.ModuleRoot(), "examples", "py-clock", "py-clock.py"))
	if err != nil {
		t.Fatal(err)
	}
	save := func(change string) { p.Write("src/source.py", string(original)+"\n"+change+"\n") }
	release := func(version string) []string {
		p.Write("clock-"+version, strings.Replace(string(original), `VERSION = "1.0.0"`, `VERSION = "`+version+`"`, 1))
		if err := os.Chmod(p.Path("clock-"+version), 0o700); err != nil {
			t.Fatal(err)
		}
		return []string{"install", p.Path("clock-" + version), "--name", "py-clock", "--version", version, "--start"}
	}
	if err := os.Mkdir(p.Path("src"), 0o700); err != nil {
		t.Fatal(err)
	}
	save("# nothing yet")
	args := []string{"src", "--name", "py-clock", "--settle", "0s", "--build", scriptBuild}
	d := startDev(t, p, args...)
	if e := d.next("upgraded"); e.Version != "0.0.0-dev.1" {
		t.Errorf("the first build is %s", e.Version)
	}
	want := fmt.Sprintf("another sox-host dev of py-clock is running (process %d): end that one first", d.cmd.Process.Pid)
	if out := p.Command(append([]string{"dev"}, args...)...); out.Code != 9 || !strings.Contains(out.Stderr, want) {
		t.Errorf("a second dev ends with %d and\n%s", out.Code, out)
	}
	p.MustCommand(release("0.1.0")...)
	save("# after 0.1.0")
	if e := d.next("upgraded"); e.Version != "0.1.1-dev.2" {
		t.Errorf("after 0.1.0 was installed the next build is %s", e.Version)
	}
	if e := d.end(); e.Version != "0.1.0" || e.Error != "" {
		t.Errorf("at the end: %+v", e)
	}
	if got := pluginFiles(t, p); !slices.Equal(got, []string{"py-clock.json", "py-clock_v0.1.0"}) {
		t.Errorf("left in the plugins folder: %v", got)
	}

	// A build that installs one while it is made is made again, once. What is chosen after the last build stays.
	meanwhile := `test ! -e ` + p.Path("again") + ` || { rm ` + p.Path("again") + ` && ` + p.HostProgram() + ` ` + strings.Join(release("0.2.0"), " ") + ` >&2; } && `
	d = startDev(t, p, append(slices.Clone(args[:len(args)-1]), strings.Replace(scriptBuild, "sh -c '", "sh -c '"+meanwhile, 1))...)
	if e := d.next("upgraded"); e.Version != "0.1.1-dev.3" {
		t.Errorf("the first build of another run is %s", e.Version)
	}
	p.Write("again", "")
	save("# while 0.2.0 is installed")
	if e := d.next("upgraded"); e.Version != "0.2.1-dev.5" {
		t.Errorf("after 0.2.0 was installed during it the build is %s", e.Version)
	}
	p.MustCommand("upgrade", "py-clock", "--to", "0.1.0", "--allow-downgrade")
	if e := d.end(); e.Version != "0.1.0" || e.Error != "" {
		t.Errorf("at the end of another run: %+v", e)
	}
	if got := pluginFiles(t, p); !slices.Equal(got, []string{"py-clock.json", "py-clock_v0.1.0", "py-clock_v0.2.0"}) {
		t.Errorf("left in the plugins folder by another run: %v", got)
	}

	// One that is killed is in nobody's way, and what it left is gone after the next.
	d = startDev(t, p, args...)
	d.next("upgraded")
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = d.cmd.Wait() // by the signal
	d = startDev(t, p, args...)
	if e := d.next("upgraded"); e.Version != "0.2.1-dev.7" {
		t.Errorf("after a run that was killed the first build is %s", e.Version)
	}
	if e := d.end(); e.Version != "0.1.0" || e.Error != "" {
		t.Errorf("at the end after a run that was killed: %+v", e)
	}
}

// goPlace is a place in which the go command finds what it has already.
func goPlace(t *testing.T) *rig.Place {
	t.Helper()
	p := rig.NewPlace(t)
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPROXY", "GOFLAGS", "GOTOOLCHAIN", "GOSUMDB"} {
		out, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		if value := strings.TrimSpace(string(out)); value != "" {
			p.Setenv(name, value)
		}
	}
	return p
}

// A change is what clients get within little more than the time that go build needs for it, and calls that are made all
// the while are answered. How little is printed, and not judged: it depends on what else the machine does.
func TestDevIsQuick(t *testing.T) {
	t.Parallel()
	p := goPlace(t)
	h := p.Serve()
	h.Initialize(nil)
	// The same sources twice: one is built by hand, the other by dev.
	for _, name := range []string{"weather", "byhand"} {
		p.MustCommand("new", name, "--replace", rig.ModuleRoot())
	}
	change := func(name string, n int) {
		t.Helper()
		path := p.Path(name + "/main.go")
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		p.Write(name+"/main.go", regexp.MustCompile(`Hello\w*, `).ReplaceAllString(string(source), fmt.Sprintf("Hello%d, ", n)))
	}
	build := func(n int) time.Duration {
		t.Helper()
		change("byhand", n)
		cmd := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-X main.version=0.0.1", "-o", p.Path("built"), ".")
		cmd.Env, cmd.Dir = p.Environ(), p.Path("byhand")
		begun := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
		return time.Since(begun)
	}
	build(0)
	d := startDev(t, p, "weather", "--settle", "0s")
	d.next("upgraded")
	p.Await("the host has the new plugin", func() bool { return slices.Contains(h.Tools(), "weather__greet") })

	var builds, swaps []time.Duration
	var ratios []float64
	calls := 0
	for n := range *devTimed {
		byHand := build(1000 + n)
		change("weather", n)
		begun := time.Now()
		want := fmt.Sprintf("Hello%d, Ann!", n)
		p.Await("somebody says "+want, func() bool {
			calls++
			answer := string(h.Tool("weather__greet", map[string]any{"name": "Ann"}).Tool(t).Structured)
			if !strings.Contains(answer, "Hello") {
				t.Errorf("a call is answered with %s", answer)
			}
			return strings.Contains(answer, want)
		})
		swapped := time.Since(begun)
		builds, swaps, ratios = append(builds, byHand), append(swaps, swapped), append(ratios, swapped.Seconds()/byHand.Seconds())
		if e := d.next("upgraded"); e.Result.Report.Failed != 0 || e.Result.Report.Unknown != 0 {
			t.Errorf("%s: %+v", e.Version, e.Result.Report)
		}
	}
	d.end()
	slices.Sort(builds)
	slices.Sort(swaps)
	slices.Sort(ratios)
	middle := len(ratios) / 2
	t.Logf("%d saves, %d calls answered: go build takes %v, a save is answered by the new build after %v, ratio %.2f (medians)",
		len(ratios), calls, builds[middle].Round(time.Millisecond), swaps[middle].Round(time.Millisecond), ratios[middle])
}

// What sox-host new writes passes its test, can be installed as its README says, and is built at every save by sox-host dev.
func TestNewPluginFromStartToEnd(t *testing.T) {
	t.Parallel()
	p := goPlace(t)
	h := p.Serve()
	h.Initialize(nil)
	out := p.MustCommand("new", "weather", "--replace", rig.ModuleRoot())
	if !strings.Contains(out.Stdout, "sox-host dev .") {
		t.Errorf("new does not say what comes next:\n%s", out)
	}
	dir := p.Path("weather")
	run := func(name string, args ...string) rig.Output {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Env, cmd.Dir = p.Environ(), dir
		raw, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, raw)
		}
		return rig.Output{Stdout: string(raw)}
	}
	if out := run("gofmt", "-l", "."); out.Stdout != "" {
		t.Errorf("not formatted: %s", out.Stdout)
	}
	run("go", "vet", "./...")
	run("go", "test", "./...")

	d := startDev(t, p, "weather")
	if e := d.next("upgraded"); e.Version != "0.0.0-dev.1" {
		t.Errorf("the first build is %s", e.Version)
	}
	p.Await("the host has the new plugin", func() bool { return slices.Contains(h.Tools(), "weather__greet") })
	greet := func() string {
		return string(h.Tool("weather__greet", map[string]any{"name": "Ann"}).Tool(t).Structured)
	}
	if got := greet(); got != `{"text":"Hello, Ann!"}` {
		t.Errorf("the new plugin says %s", got)
	}
	source, err := os.ReadFile(filepath.Join(dir, "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	save := func(pairs ...string) {
		p.Write("weather/main.go", strings.NewReplacer(pairs...).Replace(string(source)))
	}
	save("Hello, ", "Good morning, ", "type greetIn struct {", "type greetIn struct {\n\tLoud bool `json:\"loud,omitempty\"`")
	if e := d.next("upgraded"); e.Version != "0.0.0-dev.2" || !slices.Contains(e.Result.Report.Changes, "~ tools greet") || e.Result.Report.Failed != 0 {
		t.Errorf("the second build: %+v", e)
	}
	if got := greet(); got != `{"text":"Good morning, Ann!"}` {
		t.Errorf("after a save it says %s", got)
	}
	run("go", "build", "-o", "weather", ".") // is no save
	save("func main() {", "func main() { nonsense")
	d.next("failed")
	save(`New("weather", version)`, `New("weather", "1.0.0")`)
	if e := d.next("failed"); !strings.Contains(e.Result.Error, `"1.0.0"`) {
		t.Errorf("a build with a version of its own: %+v", e)
	}
	if got := greet(); got != `{"text":"Good morning, Ann!"}` {
		t.Errorf("after two bad saves it says %s", got)
	}
	save()
	last := d.next("upgraded").Version
	if e := d.end(); e.Version != last {
		t.Errorf("at the end: %+v", e)
	}
	if !strings.Contains(d.log.String(), "syntax error") {
		t.Errorf("the output of the compiler is not shown:\n%s", d.log.String())
	}

	// The README's way to a release.
	run("go", "build", "-ldflags", "-X main.version=0.1.0", "-o", "weather", ".")
	if out := p.MustCommand("install", "weather/weather", "--version", "0.1.0", "--start"); !strings.Contains(out.Stdout, "0.1.0") {
		t.Errorf("install says\n%s", out)
	}
	if got := greet(); got != `{"text":"Hello, Ann!"}` {
		t.Errorf("the release says %s", got)
	}
	for _, args := range [][]string{{"call", "weather", "greet", `{"name":"Ann"}`}, {"call", "weather.greet", `{"name":"Ann"}`}} {
		if out := p.MustCommand(args...); !strings.Contains(out.Stdout, "Hello, Ann!") {
			t.Errorf("%v says\n%s", args, out)
		}
	}
}

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sox-host/sox-host/integration/internal/history"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

const (
	module = "github.com/sox-host/sox-host"
	// hostTag and commandTag are variables that plugins inherit, by their prefix: they mark what a host started, and what a command did.
	hostTag    = "XDG_SOX_SOAK_HOST"
	commandTag = "XDG_SOX_SOAK_COMMAND"
)

// world is what outlives a round: the folder, the programs, the plugins.
type world struct {
	config
	dir     string // everything of this run
	home    string
	plugins string
	kit     string
	tag     string
	events  *events
	plugs   []*plug

	guardLost atomic.Int64 // when a guard was killed last, in nanoseconds since the epoch
	adrift    []process    // that lost host and guard at once: the next host has to end them
}

// plug is one plugin. Its lane is the only one that changes it, between rounds the run.
type plug struct {
	name     string
	framed   bool // an SDK plugin; else an ordinary MCP server behind a manifest
	alone    bool // two instances must not run at once
	timeout  time.Duration
	health   time.Duration // that it may say nothing, and then that it may take to answer a health check; 0 = the default
	good     []string
	builds   map[string]stamp.Options
	lists    map[string][]string // version → the tools a client sees
	current  string              // the active version
	previous string              // what a rollback may go to
	midway   []string            // what the step under way may commit
}

// Bad versions by what is wrong with them. They can only be reached by naming them.
const (
	badExit    = "9.0.0" // exits at once
	badHang    = "9.1.0" // is never ready
	badList    = "9.2.0" // its list is none
	badTool    = "9.3.0" // lists a tool that clients would refuse
	badName    = "9.4.0" // says that it is another version
	badCrash   = "9.5.0" // crashes soon after its first call
	badExiting = "9.6.0" // exits soon after its list
)

// before is what fails before it serves, for sure.
var before = []string{badExit, badHang, badList, badTool, badName}

// newWorld builds the programs and the plugins folder.
func newWorld(c config) (*world, error) {
	dir, err := os.MkdirTemp("", "sxs")
	if err != nil {
		return nil, err
	}
	w := &world{config: c, dir: dir, home: filepath.Join(dir, "h"), tag: fmt.Sprintf("%d-%d", os.Getpid(), time.Now().UnixNano())}
	w.plugins = filepath.Join(w.home, ".sox", "plugins")
	log, err := os.Create(filepath.Join(dir, "soak.log"))
	if err != nil {
		return w, err
	}
	var out io.Writer = log // closed with the process
	if c.verbose {
		out = io.MultiWriter(log, os.Stderr)
	}
	w.events = &events{began: time.Now(), out: out}
	if err := os.MkdirAll(w.plugins, 0o700); err != nil {
		return w, err
	}
	if w.kit, err = w.build("kit", "integration/kit", ""); err != nil {
		return w, err
	}
	if w.host == "" {
		if w.host, err = w.build("sox-host", "cmd/sox-host", c.tags); err != nil {
			return w, err
		}
	}
	w.plugs = []*plug{
		{name: "alpha", framed: true, timeout: 4 * time.Second},
		{name: "beta", framed: true, timeout: 4 * time.Second},
		{name: "gamma", framed: true, timeout: 15 * time.Second, health: 2 * time.Second},
		{name: "solo", framed: true, alone: true, timeout: 15 * time.Second, health: 2 * time.Second},
		{name: "wrapped", timeout: 4 * time.Second},
	}
	base, err := w.baseTools()
	if err != nil {
		return w, err
	}
	for _, p := range w.plugs {
		if err := w.settings(p); err != nil {
			return w, err
		}
		p.versions(base, w.home)
		p.current = p.good[0]
		if err := w.stamp(p, p.current, p.builds[p.current]); err != nil {
			return w, err
		}
	}
	// The first version is chosen while there is no other: without a host, a command tries and commits it.
	if out, err := w.command("upgrade", "--all").CombinedOutput(); err != nil {
		return w, fmt.Errorf("the first upgrade: %w\n%s", err, out)
	}
	for _, p := range w.plugs {
		for version, o := range p.builds {
			if version == p.current {
				continue
			}
			if err := w.stamp(p, version, o); err != nil {
				return w, err
			}
		}
	}
	return w, nil
}

// build builds a program of the module without what only a debugger needs: it is copied many times.
func (w *world) build(name, pkg, tags string) (string, error) {
	path := filepath.Join(w.dir, name)
	args := []string{"build", "-ldflags", "-s -w", "-o", path}
	if tags != "" {
		args = append(args, "-tags", tags)
	}
	_, file, _, _ := runtime.Caller(0)
	cmd := exec.Command("go", append(args, module+"/"+pkg)...)
	cmd.Dir = filepath.Dir(file)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return path, nil
}

// baseTools asks the kit itself for its list, without any host between.
func (w *world) baseTools() ([]string, error) {
	cmd := exec.Command(w.kit)
	cmd.Env = []string{"HOME=" + w.home, "PATH=" + os.Getenv("PATH")}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		in.Close()
		_ = cmd.Process.Kill() // it has said what was asked
		_ = cmd.Wait()
	}()
	reader := bufio.NewReader(out)
	var line []byte
	for _, request := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"soak","version":"1.0.0"}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`,
	} {
		if _, err := io.WriteString(in, request+"\n"); err != nil {
			return nil, err
		}
		if line, err = reader.ReadBytes('\n'); err != nil {
			return nil, fmt.Errorf("the kit does not list: %w", err)
		}
	}
	l, err := history.CheckLine(bytes.TrimSpace(line))
	if err != nil {
		return nil, err
	}
	return toolNames(l.Result)
}

// toolNames decodes the result of tools/list.
func toolNames(result json.RawMessage) ([]string, error) {
	var list struct {
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(result, &list); err != nil || len(list.Tools) == 0 {
		return nil, fmt.Errorf("no list of tools: %.200s", result)
	}
	var names []string
	for _, t := range list.Tools {
		names = append(names, t.Name)
	}
	return names, nil
}

// settings writes what the host has to know about a plugin.
func (w *world) settings(p *plug) error {
	settings := map[string]any{"call_timeout": p.timeout.String(), "start_timeout": "8s", "drain_timeout": "5s"}
	if p.alone {
		settings["exclusive"] = true
	}
	if p.health > 0 {
		settings["health_timeout"] = p.health.String()
	}
	raw, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(w.plugins, p.name+".json"), raw, 0o600)
}

// versions decides what each version of a plugin is.
func (p *plug) versions(base []string, home string) {
	p.builds = map[string]stamp.Options{
		badExit:    {BootExit: 7, BootSays: "soak: bad from the start"},
		badHang:    {BootHang: true},
		badList:    {List: stamp.ListBroken},
		badTool:    {List: stamp.ListBadTool},
		badName:    {Says: "1.9.9"},
		badCrash:   {CrashAfterCallMS: 100, Extra: 1},
		badExiting: {ExitAfterList: true},
	}
	versions := 6
	if !p.framed {
		versions = 3
	}
	for i := range versions {
		version := fmt.Sprintf("1.%d.0", i)
		p.good = append(p.good, version)
		// Grandchildren, in the group and away from it, are what is hardest to find when a host is killed.
		p.builds[version] = stamp.Options{Extra: i % 3, ForkGrandchild: []string{"", "group", "", "session"}[i%4]}
	}
	p.lists = map[string][]string{}
	for version, o := range p.builds {
		if p.alone {
			o.LockFile = filepath.Join(home, p.name+".lock")
			p.builds[version] = o
		}
		for _, tool := range base {
			p.lists[version] = append(p.lists[version], p.name+"__"+tool)
		}
		for n := range o.Extra {
			p.lists[version] = append(p.lists[version], fmt.Sprintf("%s__extra_%d", p.name, n))
		}
	}
}

// file is where a version lies: in the plugins folder, or beside it if it is run by a manifest.
func (w *world) file(p *plug, version string) string {
	if p.framed {
		return filepath.Join(w.plugins, p.name+"_v"+version)
	}
	return filepath.Join(w.home, p.name+"-"+version)
}

func (w *world) stamp(p *plug, version string, o stamp.Options) error {
	o.Name, o.Version = p.name, version
	if err := stamp.Write(w.file(p, version), w.kit, o); err != nil {
		return err
	}
	if p.framed {
		return nil
	}
	raw, err := json.Marshal(map[string]any{"command": w.file(p, version)})
	if err != nil {
		return err
	}
	manifest := filepath.Join(w.plugins, p.name+"_v"+version+".json")
	if err := os.WriteFile(manifest, raw, 0o600); err != nil {
		return err
	}
	old := time.Now().Add(-time.Hour) // nobody is still writing it
	return os.Chtimes(manifest, old, old)
}

// environ is what a client gives to the servers it starts, and a tag.
func (w *world) environ(variable, value string) []string {
	return []string{
		"HOME=" + w.home, "PATH=" + os.Getenv("PATH"), "USER=" + os.Getenv("USER"), "SHELL=/bin/sh", "TERM=dumb",
		variable + "=" + value,
	}
}

// process is one that was found by its tag.
type process struct {
	pid     int
	command string
}

func (p process) String() string { return fmt.Sprintf("%d %s", p.pid, p.command) }

// tagged finds the processes that have an entry in their environment and have not ended.
func tagged(entry string) []process {
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	var found []process
	for _, folder := range folders {
		env, err := os.ReadFile(folder + "/environ")
		if err != nil || !bytes.Contains(env, []byte(entry+"\x00")) {
			continue
		}
		command, err := os.ReadFile(folder + "/cmdline")
		if pid, conv := strconv.Atoi(filepath.Base(folder)); err == nil && conv == nil {
			found = append(found, process{pid, strings.TrimSpace(string(bytes.ReplaceAll(command, []byte{0}, []byte{' '})))})
		}
	}
	return found
}

// statField is a field of /proc/PID/stat after the name: 0 is the state, 1 the parent.
func statField(pid, n int) string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	if fields := strings.Fields(rest); len(fields) > n {
		return fields[n]
	}
	return ""
}

// running reports whether a process exists and has not ended.
func running(pid int) bool {
	state := statField(pid, 0)
	return state != "" && state != "Z" && state != "X"
}

// residentMiB is the memory of a process.
func residentMiB(pid int) int {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	if f := strings.Fields(string(raw)); len(f) > 1 {
		pages, _ := strconv.Atoi(f[1])
		return pages * os.Getpagesize() >> 20
	}
	return 0
}

// load is the machine's load average of the last minute.
func load() float64 {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	v, _ := strconv.ParseFloat(strings.Fields(string(raw))[0], 64)
	return v
}

// listed is what `sox-host list` says is committed, by plugin.
func (w *world) committed() (map[string][2]string, error) {
	out, err := w.command("list", "--json").Output()
	if err != nil {
		return nil, fmt.Errorf("sox-host list: %w", err)
	}
	var list struct {
		Plugins []struct {
			Plugin string `json:"plugin"`
			Active struct {
				Version string `json:"version"`
			} `json:"active"`
			Previous struct {
				Version string `json:"version"`
			} `json:"previous"`
		} `json:"plugins"`
	}
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, fmt.Errorf("sox-host list: %w", err)
	}
	versions := map[string][2]string{}
	for _, p := range list.Plugins {
		versions[p.Plugin] = [2]string{p.Active.Version, p.Previous.Version}
	}
	return versions, nil
}

// command is a command of sox-host that has not been started.
func (w *world) command(args ...string) *exec.Cmd {
	cmd := exec.Command(w.host, args...)
	cmd.Env, cmd.Dir = w.environ(commandTag, w.tag), w.home
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// stateIsWhole looks for state files that are torn.
func (w *world) stateIsWhole() (err error) {
	walk := func(path string, entry os.DirEntry, failure error) error {
		if failure != nil || entry.IsDir() || filepath.Ext(path) != ".json" {
			return nil // a temporary file may go while it is looked at
		}
		raw, failure := os.ReadFile(path)
		if failure == nil && !json.Valid(raw) {
			err = errors.Join(err, fmt.Errorf("%s is torn: %.100q", path, raw))
		}
		return nil
	}
	return errors.Join(err, filepath.WalkDir(filepath.Join(w.home, ".sox", "state"), walk))
}

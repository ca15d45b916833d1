package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/sox-host/sox-host/host/internal/control"
	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/host/internal/shared"
	"github.com/sox-host/sox-host/host/internal/store"
	"github.com/sox-host/sox-host/plugin/socket"
)

// Level says how much a finding matters.
type Level string

const (
	LevelOK      Level = "ok"
	LevelNote    Level = "note"    // worth knowing, nothing to do
	LevelWarning Level = "warning" // works, and will surprise somebody
	LevelProblem Level = "problem" // does not work until it is mended
	LevelFixed   Level = "fixed"   // was a problem until just now
)

const (
	// lowSpace is when a disk counts as full soon: 200 MiB, some ten builds of common size.
	lowSpace = 200 << 20
	// noSpace is when the next build may not fit: 20 MiB.
	noSpace = 20 << 20
)

// counted is a number with its noun.
func counted(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// Finding is one thing that was looked at.
type Finding struct {
	Level   Level  `json:"level"`
	Check   string `json:"check"`   // home, plugins, store, state, run, logs, path, shared, host, process, plugin
	Subject string `json:"subject"` // a path, a plugin, a process
	Text    string `json:"text"`
	Fix     string `json:"fix,omitempty"` // a command, or what a person has to do
}

// DoctorReport is the result of Doctor.
type DoctorReport struct {
	Exit     Exit      `json:"exit"`
	Findings []Finding `json:"findings"`
}

// DoctorOptions says what to look at.
type DoctorOptions struct {
	Home       string // absolute
	PluginsDir string // absolute
	Version    string // of the program that asks, to compare with running hosts; "" compares nothing
	// Fix mends what can be mended without asking: it takes the write permission of others from folders of this
	// user, removes what dead hosts left, and recovers damaged states. It signals no process and touches no
	// plugin file.
	Fix bool
}

// Doctor looks at everything that keeps a host from working. Without Fix it changes nothing. Exit is ExitFailed while
// a problem is left.
func Doctor(ctx context.Context, o DoctorOptions) DoctorReport {
	d := doctor{DoctorOptions: o}
	d.folders()
	d.program()
	d.sockets(ctx)
	d.shared(ctx)
	d.hosts(ctx)
	d.processes()
	d.states(ctx)
	d.plugins()
	d.private()
	report := DoctorReport{Findings: d.findings}
	for _, f := range d.findings {
		if f.Level == LevelProblem {
			report.Exit = ExitFailed
		}
	}
	return report
}

// doctor gathers findings, in the order of the checks. For one goroutine.
type doctor struct {
	DoctorOptions
	findings []Finding
	running  map[string]bool // plugins of which a host has a process
}

func (d *doctor) add(level Level, check, subject, text, fix string) {
	d.findings = append(d.findings, Finding{level, check, subject, text, fix})
}

// folders looks at owner, mode and links of every folder, and at the disk under them.
func (d *doctor) folders() {
	for _, f := range []struct {
		check, path string
		mayBeLink   bool
	}{
		{"home", d.Home, true},
		{"plugins", d.PluginsDir, true},
		{"store", filepath.Join(d.Home, "store"), false},
		{"state", filepath.Join(d.Home, "state"), false},
		{"run", d.runFolder(), false},
		{"logs", filepath.Join(d.Home, "logs"), false},
	} {
		d.folder(f.check, f.path, f.mayBeLink)
	}
	d.disk()
}

// runFolder is where the sockets are: in the home, unless its path is too long for a socket's.
func (d *doctor) runFolder() string {
	path, err := control.Path(d.Home, d.PluginsDir, os.Getpid())
	if err != nil {
		return control.RunFolder(d.Home)
	}
	return filepath.Dir(path)
}

func (d *doctor) folder(check, path string, mayBeLink bool) {
	err := checkFolder(path, mayBeLink)
	var unsafe *folderFault
	if d.Fix && errors.As(err, &unsafe) && unsafe.writable {
		target := path
		if real, err := filepath.EvalSymlinks(path); err == nil && mayBeLink {
			target = real
		}
		outcome, tightenErr := socket.Tighten(target)
		if tightenErr == nil && outcome == socket.OutcomeTightened {
			d.add(LevelFixed, check, path, "others could write it; they no longer can", "")
			return
		}
		err = errors.Join(err, tightenErr)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && check == "plugins" && path != filepath.Join(d.Home, "plugins"):
		d.add(LevelProblem, check, path, "does not exist", "mkdir -p -m 700 "+store.QuoteArg(path))
	case errors.Is(err, fs.ErrNotExist) && check == "plugins":
		d.add(LevelOK, check, path, "missing, made at the first start", "")
	case errors.Is(err, fs.ErrNotExist):
		d.add(LevelOK, check, path, "is made when it is needed", "")
	case errors.As(err, &unsafe):
		d.add(LevelProblem, check, path, unsafe.text, unsafe.fix)
	case err != nil:
		d.add(LevelProblem, check, path, err.Error(), "")
	default:
		d.add(LevelOK, check, path, "yours alone to write", "")
	}
}

// folderFault is why a folder cannot be trusted.
type folderFault struct {
	text, fix string
	writable  bool // by others, and nothing else
}

func (f *folderFault) Error() string { return f.text }

func checkFolder(path string, mayBeLink bool) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		if !mayBeLink {
			return &folderFault{text: "is a link, which somebody may have planted", fix: "look where it leads, and replace it by a folder: rm " + store.QuoteArg(path)}
		}
		if info, err = os.Stat(path); err != nil {
			return &folderFault{text: "is a link that leads nowhere", fix: "rm " + store.QuoteArg(path)}
		}
	}
	if !info.IsDir() {
		return &folderFault{text: "is not a folder", fix: "move it elsewhere"}
	}
	if uid := ownerOf(info); uid >= 0 && uid != os.Geteuid() {
		return &folderFault{text: fmt.Sprintf("belongs to uid %d, not to uid %d", uid, os.Geteuid()), fix: fmt.Sprintf("sudo chown %d %s", os.Geteuid(), store.QuoteArg(path))}
	}
	if info.Mode().Perm()&0o022 != 0 {
		return &folderFault{text: fmt.Sprintf("others may write it (mode %04o)", info.Mode().Perm()), fix: "chmod go-w " + store.QuoteArg(path), writable: true}
	}
	if info.Mode().Perm()&0o700 != 0o700 {
		return &folderFault{text: fmt.Sprintf("you may not use it (mode %04o)", info.Mode().Perm()), fix: "chmod u+rwx " + store.QuoteArg(path)}
	}
	return nil
}

// disk looks at the file system of the store, or of what exists above it.
func (d *doctor) disk() {
	path := filepath.Join(d.Home, "store")
	for {
		if _, err := os.Stat(path); err == nil || path == filepath.Dir(path) {
			break
		}
		path = filepath.Dir(path)
	}
	free, noexec, err := fileSystem(path)
	switch {
	case err != nil:
		d.add(LevelNote, "store", path, "its file system was not asked: "+err.Error(), "")
		return
	case noexec:
		d.add(LevelProblem, "store", path, "is on a file system mounted noexec, which runs no programs", "choose another home with --home or SOX_HOME")
	}
	text := fmt.Sprintf("%d MiB free", free>>20)
	switch {
	case free < noSpace:
		d.add(LevelProblem, "store", path, text+": the next build may not fit", "free some space")
	case free < lowSpace:
		d.add(LevelWarning, "store", path, text, "free some space")
	}
}

// program compares this program with the one that clients find by its name.
func (d *doctor) program() {
	self, err := os.Executable()
	if err != nil {
		return
	}
	found, err := exec.LookPath("sox-host")
	if err != nil {
		d.add(LevelWarning, "path", self, "sox-host is not on PATH: a client that starts it by name will not find it", "give clients the full path, "+store.QuoteArg(self))
		return
	}
	mine, err := os.Stat(self)
	theirs, err2 := os.Stat(found)
	if err == nil && err2 == nil && !os.SameFile(mine, theirs) {
		d.add(LevelWarning, "path", found, "PATH leads to another sox-host than this one, "+self, "remove one of the two")
		return
	}
	d.add(LevelOK, "path", found, "is what PATH leads to", "")
}

// sockets looks for what dead hosts left in the run folder.
func (d *doctor) sockets(ctx context.Context) {
	run := d.runFolder()
	if err := socket.CheckFolder(run); err != nil {
		var unsafe *socket.FolderError
		told := slices.ContainsFunc(d.findings, func(f Finding) bool { return f.Subject == run && f.Level == LevelProblem })
		if errors.As(err, &unsafe) && !told { // a folder above it, or the mode of the one in /tmp
			d.add(LevelProblem, "run", unsafe.Dir, err.Error(), unsafe.Remedy())
		}
		return
	}
	if d.Fix {
		if dead, err := control.Sweep(run); err != nil {
			d.add(LevelProblem, "run", run, err.Error(), "")
		} else if dead > 0 {
			d.add(LevelFixed, "run", run, fmt.Sprintf("removed what %s left", counted(dead, "dead host", "dead hosts")), "")
		}
		return
	}
	paths, err := control.Sockets(run)
	if err != nil {
		d.add(LevelProblem, "run", run, err.Error(), "")
	}
	for _, path := range paths {
		if found, err := socket.Probe(ctx, path); err == nil && found == socket.StaleOrStarting {
			d.add(LevelNote, "run", path, "left by a host that died; the next host removes it", "sox-host doctor --fix")
		}
	}
}

// shared looks at the sockets of processes that several hosts use.
func (d *doctor) shared(ctx context.Context) {
	const check = "shared"
	if d.Fix {
		if dead, err := shared.Sweep(d.Home); err != nil {
			d.add(LevelProblem, check, d.Home, err.Error(), "")
		} else if dead > 0 {
			d.add(LevelFixed, check, d.Home, fmt.Sprintf("removed what %s left", counted(dead, "dead shared process", "dead shared processes")), "")
		}
	}
	found, err := shared.List(ctx, d.Home)
	var unsafe *socket.FolderError
	if err != nil && !errors.As(err, &unsafe) { // which is told already
		d.add(LevelProblem, check, d.Home, err.Error(), "")
	}
	for _, f := range found {
		holder := fmt.Sprintf("process %d", f.Holder.PID)
		switch {
		case f.Err != nil:
			d.add(LevelProblem, check, f.Path, f.Err.Error(), "")
		case f.Held && !f.Liveness.Serving():
			d.add(LevelProblem, check, f.Path, holder+" holds its lock and does not serve: it is starting, ending, or hangs",
				fmt.Sprintf("if it stays so, look at it, then: kill %d", f.Holder.PID))
		case f.Liveness.Serving():
			d.add(LevelOK, check, f.Path, holder+" serves", "")
		case f.Liveness == socket.StaleOrStarting:
			d.add(LevelNote, check, f.Path, "left by a shared process that died; the next host removes it", "sox-host doctor --fix")
		}
	}
}

// hosts asks the running hosts of the plugins folder.
func (d *doctor) hosts(ctx context.Context) {
	remotes, err := Remotes(ctx, d.Home, d.PluginsDir)
	if err != nil {
		return // the run folder, which is told already
	}
	texts, statuses := make([]Finding, len(remotes)), make([]Status, len(remotes))
	var asking sync.WaitGroup
	for i, r := range remotes {
		// Ended by statusTimeout.
		asking.Go(func() {
			var err error
			statuses[i], err = r.Status(ctx)
			texts[i] = d.host(r, statuses[i], err)
		})
	}
	asking.Wait()
	d.findings = append(d.findings, texts...)
	d.running = make(map[string]bool)
	for _, status := range statuses {
		for _, p := range status.Plugins {
			d.running[p.Plugin] = d.running[p.Plugin] || p.PID > 0
		}
	}
}

// host is what a host's status, or its error, says.
func (d *doctor) host(r *Remote, status Status, err error) Finding {
	f := Finding{Level: LevelOK, Check: "host", Subject: fmt.Sprintf("pid %d", r.PID), Text: "answers"}
	switch {
	case errors.Is(err, ErrUnresponsive):
		f.Level, f.Text, f.Fix = LevelProblem, "does not answer: it is stopped or hangs", fmt.Sprintf("end its client, or: kill -CONT %d", r.PID)
	case err != nil:
		f.Level, f.Text = LevelWarning, err.Error()
	case d.Version != "" && status.Version != d.Version:
		f.Level, f.Text = LevelWarning, fmt.Sprintf("runs sox-host %s, this is %s", status.Version, d.Version)
		f.Fix = "restart its client " + status.Client
	}
	return f
}

// processes names what a host that is gone has left. The next host that starts ends it.
func (d *doctor) processes() {
	for _, pid := range process.Orphans() {
		if command := commandLine(pid); command != "" {
			d.add(LevelWarning, "process", fmt.Sprintf("pid %d", pid), "left by a host that is gone: "+command,
				fmt.Sprintf("the next sox-host serve ends it, or now: kill %d", pid))
		}
	}
}

// states looks at what is remembered about each plugin.
func (d *doctor) states(ctx context.Context) {
	home, err := store.OpenHome(d.Home)
	if err != nil {
		return // a folder, which is told already
	}
	states, err := home.State(d.PluginsDir)
	if err != nil {
		d.add(LevelProblem, "state", d.Home, err.Error(), "")
		return
	}
	paths, _ := filepath.Glob(filepath.Join(states.Dir(), "*.json"))
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		_, err := states.Load(name)
		var damaged *store.StateError
		if errors.As(err, &damaged) && damaged.Corrupt && d.Fix {
			state, err := states.Recover(ctx, name)
			if err == nil {
				d.add(LevelFixed, "state", name, fmt.Sprintf("was damaged; recovered at %s, the old file is kept as %s.damaged", state.Active.Version, path), "")
				continue
			}
			d.add(LevelProblem, "state", name, err.Error(), "")
			continue
		}
		if err != nil {
			d.add(LevelProblem, "state", name, err.Error(), "sox-host doctor --fix")
		}
	}
	if d.Fix {
		if err := home.Sweep(); err != nil {
			d.add(LevelProblem, "store", d.Home, err.Error(), "")
		}
		removeAbandoned(d.PluginsDir)
	}
}

// plugins looks at every file of the plugins folder.
func (d *doctor) plugins() {
	inventory, err := List(d.Home, d.PluginsDir)
	var missing *store.FolderError
	if errors.As(err, &missing) {
		return // told already
	}
	if err != nil {
		d.add(LevelProblem, "plugins", d.PluginsDir, err.Error(), "")
		return
	}
	if len(inventory.Plugins) == 0 {
		d.add(LevelNote, "plugin", d.PluginsDir, "no plugins there", "sox-host install FILE")
	}
	for _, p := range inventory.Plugins {
		before := len(d.findings)
		d.strayed(p, inventory.Plugins)
		d.toolSettings(p)
		for _, f := range p.Files {
			if slices.Contains(p.Shadowed, f.Path) {
				d.add(LevelWarning, "plugin", p.Plugin, filepath.Base(f.Path)+": "+f.Reason, "keep one of the two")
				continue
			}
			d.file(f, p.Plugin)
		}
		for _, problem := range p.Problems {
			fix := "sox-host info " + p.Plugin
			if problem == p.failed {
				fix = d.failedFix(p)
			}
			d.add(LevelWarning, "plugin", p.Plugin, problem, fix)
		}
		if len(d.findings) == before {
			d.add(LevelOK, "plugin", p.Plugin, strings.TrimSpace("ready "+p.Active.Version.String()), "")
		}
	}
	for _, f := range inventory.Others {
		d.file(f, filepath.Base(f.Path))
	}
}

// failedFix is what to do about a start that failed. The log is worth a look only if the plugin has printed something.
func (d *doctor) failedFix(p PluginInfo) string {
	again := "then try it: sox-host tools " + p.Plugin
	for _, f := range p.Files {
		if f.URL != "" && f.Verdict == store.Ready {
			return fmt.Sprintf("see that %s can be reached and that %s is right, %s", f.URL, filepath.Base(f.Path), again)
		}
	}
	home, err := store.OpenHome(d.Home)
	if err == nil {
		if info, err := os.Stat(logPath(home, p.Plugin)); err == nil && info.Size() > 0 {
			return "sox-host logs " + p.Plugin
		}
	}
	return "mend what it says, " + again
}

func (d *doctor) file(f PluginFile, subject string) {
	switch f.Verdict {
	case store.Ready, store.SettingsFile, store.Sidecar, store.Ignored, store.Settling:
		return
	}
	if f.Foreign() || f.Verdict == store.WrongArch {
		return // normal in a folder of several machines
	}
	text, fix := fmt.Sprintf("%s: %s", f.Verdict, f.Reason), ""
	if before, command, ok := strings.Cut(text, ": run: "); ok {
		text, fix = before, command
	}
	if before, name, ok := strings.Cut(text, ": rename it to "); ok && !strings.HasPrefix(name, "NAME") {
		text, fix = before, "mv -i "+store.QuoteArg(f.Path)+" "+store.QuoteArg(filepath.Join(filepath.Dir(f.Path), name))
	}
	if f.Verdict == store.BadSettings {
		fix = "sox-host help " + settingsTopic
		if d.running[f.Name] {
			text += "; a running host goes by the settings before as long as its process of the plugin lives"
		}
	}
	d.add(LevelProblem, "plugin", subject, filepath.Base(f.Path)+": "+text, fix)
}

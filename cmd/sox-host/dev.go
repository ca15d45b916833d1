package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sox-host/sox-host/host"
	"github.com/sox-host/sox-host/plugin/socket"
)

const (
	// devSettle is how long a build is watched before it counts as good: half a second finds what dies at once, and
	// a save should not take longer than that.
	devSettle = 500 * time.Millisecond
	// devFarewell bounds the way back at the end: a start, a drain and a stop.
	devFarewell = 90 * time.Second
)

// devOptions are the flags of dev.
type devOptions struct {
	name, build   string
	ignore        []string
	settle, drain time.Duration
	keep          bool
}

func devCommand() *command {
	var o devOptions
	return &command{
		name:      "dev",
		args:      "DIR",
		minArgs:   1,
		maxArgs:   1,
		jsonUsage: "print one JSON object for each save, on a line of its own",
		short:     "Build a plugin at every save and swap it under its clients",
		help: `Watches a folder. After each save it builds, drops the result into the plugins folder
and upgrades the running hosts, as sox-host upgrade does: no call is lost, and lists
that clients have are updated. What does not build, or does not start, changes nothing.

Every build is a version of its own, X.Y.Z-dev.N, above all others there are when it is
made. It has to report that version. Without --build that is
    go build -buildvcs=false -ldflags "-X main.version=X.Y.Z-dev.N" -o OUT .
so declare var version in package main and give it to sdk.New. With --build any command
will do. It is split at spaces, with quotes, and no shell is involved. {out}, {version}
and {name} in it are replaced; SOX_DEV_OUT, SOX_DEV_VERSION and SOX_DEV_NAME are in its
environment. It has to write the program to {out}; name what else it writes in DIR with
--ignore. A compiled program in DIR, such as that of a go build by hand, is no source.

At the end, with Ctrl-C, the hosts go back to the version that was there before, or to the
one that was chosen since, and the files are removed. If there is none, the last build stays.
One plugin has one dev at a time.

Examples:
  sox-host dev .
  sox-host dev ~/src/weather --name weather
  sox-host dev . --build './build.sh {version} {out}' --ignore target
  sox-host dev . --build "sh -c 'sed s/1[.]0[.]0/{version}/ clock.py > {out} && chmod +x {out}'"
`,
		exits: rollExits, // at its end it goes back
		means: map[host.Exit]string{host.ExitDone: "ended by Ctrl-C", host.ExitPartial: "at the end not all hosts went back"},
		flags: func(fs *pflag.FlagSet) {
			fs.StringVar(&o.name, "name", "", "`name` of the plugin (default: that of the folder)")
			fs.StringVar(&o.build, "build", "", "`command` that builds (default: go build)")
			fs.StringArrayVar(&o.ignore, "ignore", nil, "`pattern` of files whose changes are no saves, such as '*.log'; may be repeated")
			fs.DurationVar(&o.settle, "settle", devSettle, "how long a build is watched before it counts as good, with the old one kept warm")
			fs.DurationVar(&o.drain, "drain-timeout", 0, drainUsage)
			fs.BoolVar(&o.keep, "keep", false, "stay at the last build at the end")
		},
		run: func(ctx context.Context, c *call) error { return runDev(ctx, c, o) },
	}
}

func runDev(ctx context.Context, c *call, o devOptions) error {
	d, err := newDev(c, o)
	if err != nil {
		return err
	}
	unlock, err := lockDev(c.home, c.pluginsDir, d.name)
	if err != nil {
		return err
	}
	defer unlock()
	if err := d.begin(); err != nil {
		return err
	}
	defer os.RemoveAll(d.out)
	saves, err := watchSources(d.dir, d.name, append(o.ignore, c.home, c.pluginsDir))
	if err != nil {
		return err
	}
	defer saves.close()
	fmt.Fprintf(c.stderr, "watching %s for %s; Ctrl-C ends\n", oneLine(d.dir), d.name)
	for ctx.Err() == nil {
		built := d.save(ctx)
		if err := saves.wait(ctx, built, c.stderr); err != nil && ctx.Err() == nil {
			return errors.Join(err, d.end())
		}
	}
	return d.end()
}

// lockDev excludes another dev of the same plugin.
func lockDev(home, pluginsDir, name string) (unlock func(), err error) {
	unlock, err = host.LockDev(home, pluginsDir, name)
	var locked *socket.LockedError
	if !errors.As(err, &locked) {
		return unlock, err
	}
	who := ""
	if locked.Holder.PID > 0 {
		who = fmt.Sprintf(" (process %d)", locked.Holder.PID)
	}
	return nil, &exitError{host.ExitBusy, fmt.Errorf("another sox-host dev of %s is running%s: end that one first", name, who)}
}

// dev is one run of the command. It is used by one goroutine.
type dev struct {
	c       *call
	o       devOptions
	dir     string // of the sources, absolute
	name    string
	out     string // folder of its own, in which builds are made
	builder builder

	// See look for the first two.
	before  string   // the version to go back to, "" = none
	active  string   // the build that is active, "" if it is none of dev's
	names   devNames // hands out the versions of the builds
	dropped []string // versions whose files are in the plugins folder
}

// devEvent is one line of the result with --json.
type devEvent struct {
	Event   string           `json:"event"` // upgraded, failed or ended
	Plugin  string           `json:"plugin"`
	Version string           `json:"version,omitempty"`
	BuildMS int64            `json:"build_ms,omitempty"`
	Error   string           `json:"error,omitempty"`
	Result  *host.PluginRoll `json:"result,omitempty"`
}

// newDev checks the arguments. It changes nothing.
func newDev(c *call, o devOptions) (*dev, error) {
	d := &dev{c: c, o: o}
	var err error
	if d.dir, err = filepath.Abs(c.args[0]); err != nil {
		return nil, err
	}
	if info, err := os.Stat(d.dir); err != nil || !info.IsDir() {
		return nil, &exitError{host.ExitNotFound, fmt.Errorf("there is no folder %s", d.dir)}
	}
	if d.name = o.name; d.name == "" {
		d.name = filepath.Base(d.dir)
		if !host.ValidName(d.name) {
			return nil, usagef("the folder's name %q cannot name a plugin: pass --name", d.name)
		}
	}
	if err := checkPluginName(d.name); err != nil {
		return nil, err
	}
	if o.drain < 0 {
		return nil, usagef("a time limit cannot be negative")
	}
	command, err := splitCommand(o.build)
	if err != nil {
		return nil, usagef("--build: %w", err)
	}
	d.builder = builder{dir: d.dir, name: d.name, command: command, output: c.stderr}
	return d, c.folders()
}

// begin looks at what there is, under the lock. Of what it makes, only out is to be removed by the caller.
func (d *dev) begin() error {
	p, err := d.find()
	if err != nil {
		return err
	}
	if p.Pin != nil {
		return &exitError{host.ExitRefused, fmt.Errorf("%s is pinned to %s: run sox-host unpin %s first", d.name, p.Pin.Version, d.name)}
	}
	if _, err := devBase(p); err != nil {
		return err
	}
	d.look(p)
	for _, f := range p.Files {
		if v := f.Version.String(); isDevVersion(v) {
			d.dropped = append(d.dropped, v)
		}
	}
	d.out, err = os.MkdirTemp("", "sox-dev-")
	return err
}

// find returns what the plugins folder knows of the plugin; nothing is no error.
func (d *dev) find() (host.PluginInfo, error) {
	inventory, err := host.List(d.c.home, d.c.pluginsDir)
	if host.ExitCode(err) == host.ExitNotFound {
		err = nil // no folder yet: the first drop makes it
	}
	for _, p := range inventory.Plugins {
		if p.Plugin == d.name {
			return p, err
		}
	}
	return host.PluginInfo{Plugin: d.name}, err
}

// look takes in what is active now. That changes under dev when somebody installs, upgrades or rolls back meanwhile.
func (d *dev) look(p host.PluginInfo) {
	active, previous := p.Active.Version.String(), p.Previous.Version.String()
	switch {
	case !isDevVersion(active): // as it was, or chosen since; none if the plugin is new, or was removed
		d.active, d.before = "", active
	case !isDevVersion(previous) && previous != "": // what the first build, or one that followed a choice, came after
		d.active, d.before = active, previous
	default: // a build after a build, which a run that was killed may have left
		d.active = active
	}
}

// save is one turn: build, drop, upgrade. Whatever fails leaves what runs. It returns when the build ran.
func (d *dev) save(ctx context.Context) (built span) {
	event := devEvent{Event: "failed", Plugin: d.name}
	built.from = time.Now()
	version, out, err := d.build(ctx)
	built.to = time.Now()
	event.Version = version
	event.BuildMS = built.to.Sub(built.from).Milliseconds()
	defer os.Remove(out) // the plugins folder has a copy
	if ctx.Err() != nil {
		return built
	}
	if err == nil {
		_, err = host.Install(ctx, host.InstallOptions{Home: d.c.home, PluginsDir: d.c.pluginsDir, File: out, Name: d.name, Version: version})
	}
	if err == nil {
		d.dropped = append(d.dropped, version)
		event.Result, err = d.roll(ctx, version)
		if err == nil && event.Result.Exit == host.ExitDone {
			event.Event, d.active = "upgraded", version
		}
	}
	if err != nil {
		event.Error = err.Error()
	}
	d.show(event)
	d.tidy(ctx)
	return built
}

// build makes a program of a version above all others, in out. A version that is installed while it builds may be
// above that: then it builds once more.
func (d *dev) build(ctx context.Context) (version, out string, err error) {
	for {
		p, err := d.find()
		if err != nil {
			return "", "", err
		}
		d.look(p)
		base, version, err := d.names.next(p)
		if err != nil {
			return "", "", err
		}
		out := filepath.Join(d.out, d.name+"_v"+version)
		if err := d.builder.build(ctx, version, out); err != nil {
			return version, out, err
		}
		if p, err = d.find(); err != nil {
			return version, out, err
		}
		d.look(p)
		if now, err := devBase(p); err != nil || now == base {
			return version, out, err
		}
		_ = os.Remove(out) // else it goes with its folder
	}
}

// roll goes to a version in every running host. Once begun it is not interrupted: it has limits of its own.
func (d *dev) roll(ctx context.Context, version string) (*host.PluginRoll, error) {
	settle := d.o.settle.Milliseconds()
	if settle <= 0 {
		settle = -1 // in a request 0 is the default
	}
	shown := newProgress(d.c.stderr)
	defer shown.clear()
	report, err := host.Roll(context.WithoutCancel(ctx), host.RollOptions{
		Home:       d.c.home,
		PluginsDir: d.c.pluginsDir,
		Plugins:    []string{d.name},
		Request: host.UpgradeRequest{
			To: version, AllowDowngrade: true, AllowBreaking: true, SettleMS: settle, DrainTimeoutMS: d.o.drain.Milliseconds(),
		},
		Progress: shown.step,
	})
	if err != nil {
		return nil, err
	}
	return &report.Plugins[0], nil
}

// tidy removes the files of builds that nobody is to go back to. What stays behind is tried again at the next save.
func (d *dev) tidy(ctx context.Context) {
	var left []string
	for _, version := range d.dropped {
		if version == d.active {
			left = append(left, version)
			continue
		}
		_, err := host.Remove(ctx, host.RemoveOptions{Home: d.c.home, PluginsDir: d.c.pluginsDir, Plugin: d.name, Version: version})
		if err != nil && host.ExitCode(err) != host.ExitNotFound {
			left = append(left, version)
		}
	}
	d.dropped = left
}

// end goes back to what was there before, if that can be, and removes the files. What somebody else chose stays.
func (d *dev) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), devFarewell)
	defer cancel()
	back := d.before
	if p, err := d.find(); err == nil { // else by what was seen last
		d.look(p)
		if back = d.before; back == "" && !isDevVersion(p.Available) {
			back = p.Available // installed, and never started
		}
	}
	event := devEvent{Event: "ended", Plugin: d.name}
	var err error
	if d.active != "" && back != "" && !d.o.keep {
		event.Result, err = d.roll(ctx, back)
		switch {
		case err == nil && event.Result.Exit == host.ExitDone:
			d.active, d.before = "", back
		case err == nil:
			err = &exitError{event.Result.Exit, fmt.Errorf("%s stays at %s: %s", d.name, d.active, event.Result.Error)}
		}
	}
	event.Version = cmp.Or(d.active, d.before)
	d.tidy(ctx)
	if err != nil {
		event.Error = err.Error()
	}
	d.show(event)
	return err
}

// show prints one event.
func (d *dev) show(e devEvent) {
	c := d.c
	if c.json {
		line, err := json.Marshal(e)
		if err != nil {
			line = []byte(`{"event":"failed"}`) // cannot happen: all of it is text and numbers
		}
		c.printf("%s\n", line)
		return
	}
	took := fmt.Sprintf("built in %s", millis(float64(e.BuildMS)))
	switch {
	case e.Event == "ended" && e.Error != "": // the command's error says it
	case e.Event == "ended" && d.active != "":
		c.printf("%s  stays at %s   next: sox-host install PROGRAM --name %s --version X.Y.Z --start%s\n", d.name, d.active, d.name, c.sameFolders())
	case e.Event == "ended" && e.Result != nil:
		c.printf("%s  back at %s\n", d.name, e.Version)
	case e.Event == "ended" && e.Version != "":
		c.printf("%s  stays at %s\n", d.name, e.Version)
	case e.Event == "ended":
	case e.Event == "failed" && e.Result == nil:
		c.printf("%s  %s: %s%s\n", d.name, e.Version, oneLine(e.Error), d.stays())
	case e.Event == "failed":
		c.printf("%s  %s: %s   %s%s\n", d.name, e.Version, took, strings.Join(outcome(c, *e.Result, host.UpgradeRequest{}), "   "), d.hint(e))
	default:
		d.showUpgrade(e, took)
	}
}

func (d *dev) showUpgrade(e devEvent, took string) {
	r := e.Result.Report
	parts := []string{took}
	if r.Schema != "" {
		parts = append(parts, "schema "+r.Schema)
	}
	if hasCutOver(r) {
		parts = append(parts, fmt.Sprintf("cut over in %s", millis(r.CutoverMS)), count(r.Failed, "call")+" failed")
	}
	if r.NoHost {
		parts = append(parts, noHost)
	}
	if n := len(e.Result.Hosts); n > 1 {
		parts = append(parts, fmt.Sprintf("on %d hosts", n))
	}
	d.c.printf("%s  %s   %s\n", d.name, e.Version, oneLine(strings.Join(parts, "   ")))
	for _, change := range r.Changes {
		d.c.printf("  %s\n", oneLine(change))
	}
	for _, breaking := range r.Breaking {
		d.c.printf("  breaking: %s\n", oneLine(breaking))
	}
	printHosts(d.c, e.Result.Hosts)
}

// stays says what remains after a build that failed.
func (d *dev) stays() string {
	if version := cmp.Or(d.active, d.before); version != "" {
		return "   " + version + " stays active"
	}
	return ""
}

// ownName is what the host says of a plugin that has another name than its file.
func ownName() *regexp.Regexp { return regexp.MustCompile(`calls itself "([a-z0-9-]+)" but its file`) }

// hint is for the mistakes that everybody makes once.
func (d *dev) hint(e devEvent) string {
	if e.Result.Report.FailedStep != "ready" {
		return ""
	}
	if m := ownName().FindStringSubmatch(e.Result.Error); m != nil {
		return "\n  dev takes the name of the plugin from the folder: end it and pass --name " + m[1]
	}
	if strings.Contains(e.Result.Error, "version") {
		return "\n  dev sets the variable version of package main when it builds: declare var version and pass it to sdk.New, or print {version} with --build"
	}
	return ""
}

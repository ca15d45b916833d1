package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sox-host/sox-host/host"
	"github.com/sox-host/sox-host/plugin/wire"
)

func TestSplitCommand(t *testing.T) {
	for line, want := range map[string][]string{
		"":                             nil,
		"make":                         {"make"},
		" make  build\tx ":             {"make", "build", "x"},
		`sh -c "a 'b' > {out}"`:        {"sh", "-c", "a 'b' > {out}"},
		`x --flag='a b' ""`:            {"x", "--flag=a b", ""},
		`C:\tools\build.exe $HOME/a*b`: {`C:\tools\build.exe`, "$HOME/a*b"},
	} {
		if got, err := splitCommand(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v, want %q", line, got, err, want)
		}
	}
	for _, line := range []string{`sh -c "a`, "x '", "  "} {
		if got, err := splitCommand(line); err == nil {
			t.Errorf("%q is accepted as %q", line, got)
		}
	}
}

func devInfo(t *testing.T, active, previous string, files ...string) host.PluginInfo {
	t.Helper()
	version := func(s string) (v host.Version) {
		if s != "" {
			if err := v.UnmarshalText([]byte(s)); err != nil {
				t.Fatal(err)
			}
		}
		return v
	}
	p := host.PluginInfo{Plugin: "notes", Active: host.BuildRef{Version: version(active)}, Previous: host.BuildRef{Version: version(previous)}}
	for _, f := range files {
		p.Files = append(p.Files, host.PluginFile{Version: version(f)})
	}
	return p
}

// A build is above everything there is, below the release that follows, and never has a version that was used.
func TestDevVersions(t *testing.T) {
	for name, c := range map[string]struct {
		p    host.PluginInfo
		want string
	}{
		"nothing_yet":               {devInfo(t, "", ""), "0.0.0-dev.1"},
		"next_patch":                {devInfo(t, "1.2.3", "1.2.2", "1.2.3", "1.2.2"), "1.2.4-dev.1"},
		"file_above_the_active_one": {devInfo(t, "1.2.3", "", "1.10.0", "1.9.0"), "1.10.1-dev.1"},
		"only_a_file":               {devInfo(t, "", "", "0.1.0"), "0.1.1-dev.1"},
		"active_without_a_file":     {devInfo(t, "2.0.0", ""), "2.0.1-dev.1"},
		"prerelease":                {devInfo(t, "1.3.0-rc.2", "", "1.3.0-rc.2"), "1.3.1-dev.1"},
		"build_metadata":            {devInfo(t, "1.3.0+a-b.c", ""), "1.3.1-dev.1"},
		"left_from_a_killed_run":    {devInfo(t, "1.2.4-dev.7", "1.2.4-dev.9", "1.2.3", "1.2.4-dev.8"), "1.2.4-dev.10"},
		"only_left_overs":           {devInfo(t, "0.0.0-dev.4", ""), "0.0.0-dev.5"},
		"no_dev_version":            {devInfo(t, "1.2.4-dev", "", "1.2.4-device.9"), "1.2.5-dev.1"},
		"left_above_what_is_there":  {devInfo(t, "1.3.1-dev.2", "1.3.0", "1.2.3"), "1.3.1-dev.3"},
	} {
		var names devNames
		if got := nextName(t, &names, c.p); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if a, b := nextName(t, &names, c.p), nextName(t, &names, c.p); a == b {
			t.Errorf("%s: %s is given twice", name, a)
		}
	}
	if _, _, err := new(devNames).next(devInfo(t, "1.0.99999999999999999999", "")); err == nil {
		t.Error("a patch that cannot be counted up is accepted")
	}
}

func nextName(t *testing.T, names *devNames, p host.PluginInfo) string {
	t.Helper()
	_, version, err := names.next(p)
	if err != nil {
		t.Fatal(err)
	}
	return version
}

// What is installed while dev runs is below its next build, and no number is given a second time.
func TestDevVersionsFollowWhatIsInstalled(t *testing.T) {
	var names devNames
	for _, c := range []struct {
		p    host.PluginInfo
		want string
	}{
		{devInfo(t, "", ""), "0.0.0-dev.1"},
		{devInfo(t, "0.0.0-dev.1", "", "0.0.0-dev.1"), "0.0.0-dev.2"},
		{devInfo(t, "0.1.0", "0.0.0-dev.2", "0.1.0", "0.0.0-dev.2"), "0.1.1-dev.3"},
		{devInfo(t, "0.1.1-dev.3", "0.1.0", "0.1.1-dev.3"), "0.1.1-dev.4"}, // 0.1.0 was removed
		{devInfo(t, "", ""), "0.0.0-dev.5"},                                // all of it was
	} {
		if got := nextName(t, &names, c.p); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

// The way back leads to what others chose last, and never to a build.
func TestDevGoesBackToTheLastChoice(t *testing.T) {
	d := &dev{}
	for _, c := range []struct {
		does           string
		p              host.PluginInfo
		active, before string
	}{
		{"a new plugin", devInfo(t, "", ""), "", ""},
		{"a build", devInfo(t, "0.0.0-dev.1", ""), "0.0.0-dev.1", ""},
		{"another build", devInfo(t, "0.0.0-dev.2", "0.0.0-dev.1"), "0.0.0-dev.2", ""},
		{"a release is chosen", devInfo(t, "0.1.0", "0.0.0-dev.2"), "", "0.1.0"},
		{"a build after it", devInfo(t, "0.1.1-dev.3", "0.1.0"), "0.1.1-dev.3", "0.1.0"},
		{"another build after it", devInfo(t, "0.1.1-dev.4", "0.1.1-dev.3"), "0.1.1-dev.4", "0.1.0"},
		{"rolled back to a build", devInfo(t, "0.1.1-dev.3", "0.1.1-dev.4"), "0.1.1-dev.3", "0.1.0"},
		{"chosen between look and upgrade", devInfo(t, "0.2.1-dev.5", "0.2.0"), "0.2.1-dev.5", "0.2.0"},
		{"a lower one is chosen", devInfo(t, "0.1.0", "0.2.1-dev.5"), "", "0.1.0"},
		{"removed", devInfo(t, "", ""), "", ""},
		{"a build after that", devInfo(t, "0.0.0-dev.6", ""), "0.0.0-dev.6", ""},
	} {
		d.look(c.p)
		if d.active != c.active || d.before != c.before {
			t.Errorf("%s: active %q, back to %q, want %q and %q", c.does, d.active, d.before, c.active, c.before)
		}
	}
}

// A build that is not what its file promises comes with what to do about it under dev.
func TestDevHints(t *testing.T) {
	ready := func(name, version string) string {
		r := wire.Ready{Protocol: wire.ProtocolRange{Min: wire.Protocol, Max: wire.Protocol}, Name: name, Version: version}
		return r.Check("empty", "0.0.0-dev.1").Error()
	}
	for said, want := range map[string]string{
		ready("w4", "0.0.0-dev.1"): "pass --name w4",
		ready("empty", "1.0.0"):    "declare var version",
		"exit status 1":            "",
	} {
		e := devEvent{Result: &host.PluginRoll{Error: said, Report: host.Report{FailedStep: "ready"}}}
		if got := new(dev).hint(e); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("of %s it says %q, want %q", said, got, want)
		}
	}
}

func TestBuilder(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skipf("the builds of this test are shell commands: %v", err)
	}
	dir := t.TempDir()
	var log bytes.Buffer
	build := func(script string) (string, error) {
		t.Helper()
		log.Reset()
		out := filepath.Join(t.TempDir(), "out")
		b := builder{dir: dir, name: "notes", command: []string{"sh", "-c", script}, output: &log}
		err := b.build(t.Context(), "1.0.0-dev.1", out)
		raw, _ := os.ReadFile(out) // none after a failure
		return string(raw), err
	}
	got, err := build(`printf '%s ' {version} {name} "$SOX_DEV_VERSION" "$SOX_DEV_NAME" > {out}; test "$SOX_DEV_OUT" = {out} && test "$PWD" -ef ` + dir)
	if want := "1.0.0-dev.1 notes 1.0.0-dev.1 notes "; err != nil || got != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if _, err := build(`echo "main.c:1: what?" >&2; exit 3`); err == nil || !strings.Contains(err.Error(), "exit status 3") || log.String() != "main.c:1: what?\n" {
		t.Errorf("a build that fails: %v, %q", err, log.String())
	}
	if _, err := build("true"); err == nil || !strings.Contains(err.Error(), "wrote no file") {
		t.Errorf("a build that writes nothing: %v", err)
	}
	b := builder{dir: dir, command: []string{"/no/such/compiler"}, output: io.Discard}
	if err := b.build(t.Context(), "1.0.0-dev.1", filepath.Join(dir, "x")); err == nil || !strings.Contains(err.Error(), "/no/such/compiler") {
		t.Errorf("no compiler: %v", err)
	}
}

// sources is a folder that is watched.
type sources struct {
	t    *testing.T
	dir  string
	w    *sourceWatch
	log  bytes.Buffer
	last span
}

func newSources(t *testing.T, ignore ...string) *sources {
	t.Helper()
	s := &sources{t: t, dir: t.TempDir()}
	for _, dir := range []string{"sub/deep", ".git", "node_modules/x", "logs"} {
		if err := os.MkdirAll(filepath.Join(s.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if s.w, err = watchSources(s.dir, "notes", ignore); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.w.close)
	return s
}

func (s *sources) write(name string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(name), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// build stands for one that writes files.
func (s *sources) build(writes ...string) {
	s.t.Helper()
	// A file's time comes from a clock that is a tick behind.
	s.last.from = time.Now().Add(-20 * time.Millisecond)
	for _, name := range writes {
		s.write(name)
	}
	s.last.to = time.Now()
}

// next expects a save.
func (s *sources) next() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), safetyNet)
	defer cancel()
	if err := s.w.wait(ctx, s.last, &s.log); err != nil {
		s.t.Fatalf("waiting for a save: %v", err)
	}
}

// changed is the next change, as paths below the folder.
func (s *sources) changed() []string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), safetyNet)
	defer cancel()
	paths, err := s.w.collect(ctx)
	if err != nil {
		s.t.Fatalf("waiting for a change: %v", err)
	}
	for i, path := range paths {
		if paths[i], err = filepath.Rel(s.dir, path); err != nil {
			s.t.Fatal(err)
		}
	}
	return paths
}

// Several writes are one save; what nobody means by a save is none; new folders are watched.
func TestSourceWatch(t *testing.T) {
	s := newSources(t, "*.log", "logs", filepath.Join(t.TempDir(), "home"))
	for _, name := range []string{".git/index", "node_modules/x/y.js", "main.go~", ".main.go.swp", "4913", "a.log", "sub/b.log", "logs/c", "#main.go#"} {
		s.write(name)
	}
	s.write("main.go")
	s.write("sub/deep/x.go")
	if got, want := s.changed(), []string{"main.go", "sub/deep/x.go"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if err := os.Mkdir(filepath.Join(s.dir, "fresh"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := s.changed(); !slices.Equal(got, []string{"fresh"}) {
		t.Errorf("a new folder: %q", got)
	}
	s.write("fresh/y.go")
	if got := s.changed(); !slices.Equal(got, []string{"fresh/y.go"}) {
		t.Errorf("a file in a new folder: %q", got)
	}
	if err := os.Rename(filepath.Join(s.dir, "main.go"), filepath.Join(s.dir, "sub", "main.go")); err != nil {
		t.Fatal(err)
	}
	if got := s.changed(); !slices.Contains(got, "main.go") || !slices.Contains(got, "sub/main.go") {
		t.Errorf("a file that was moved: %q", got)
	}
	if _, err := watchSources(s.dir, "notes", []string{"["}); err == nil {
		t.Error("a bad pattern is accepted")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.w.wait(ctx, s.last, io.Discard); err == nil {
		t.Error("the wait does not end with its context")
	}
}

// A program is no source, whether it comes, is replaced or goes. A text with the plugin's name is one, and so is what
// only has the mode of a program, or only its bytes.
func TestProgramsAreNoSources(t *testing.T) {
	s := newSources(t)
	program := []byte("\x7fELF\x02\x01\x01\x00 and so on")
	put := func(name string, content []byte, mode os.FileMode) {
		t.Helper()
		made := filepath.Join(s.dir, ".made")
		if err := os.WriteFile(made, content, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(made, filepath.Join(s.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	programs := []string{"notes", "notes.exe", "tool.exe"}
	if runtime.GOOS != "windows" { // where the mode says nothing
		programs = append(programs, "tool", "sub/sub.test")
	}
	for _, round := range []string{"new", "replaced"} {
		for _, name := range programs {
			put(name, program, 0o755)
		}
		put("sub/notes", nil, 0o644)               // nothing is written yet
		put("sub/deep/notes", []byte{0, 0}, 0o644) // its head is written last
		put("empty.exe", nil, 0o755)
		put("main.go", []byte("package main\n"), 0o644) // by one event
		if got := s.changed(); !slices.Equal(got, []string{"main.go"}) {
			t.Errorf("%s: %q", round, got)
		}
	}
	for _, name := range programs {
		if err := os.Remove(filepath.Join(s.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	put("main.go", []byte("package main\n"), 0o644) // by one event
	if got := s.changed(); !slices.Equal(got, []string{"main.go"}) {
		t.Errorf("removed: %q", got)
	}
	for _, source := range []struct {
		name    string
		content []byte
		mode    os.FileMode
	}{
		{"notes", []byte("#!/bin/sh\n"), 0o755},
		{"icon.png", []byte("\x89PNG\r\n\x1a\n\x00\x00"), 0o755}, // where every file is executable
		{"table.csv", []byte("MZ;1;2\n"), 0o755},
		{"filter.o", program, 0o644}, // to be embedded
	} {
		put(source.name, source.content, source.mode)
		if got := s.changed(); !slices.Equal(got, []string{source.name}) {
			t.Errorf("%s: %q", source.name, got)
		}
	}
}

// What every build writes is no save; what a person writes is one, during a build too.
func TestBuildOutputIsNoSave(t *testing.T) {
	s := newSources(t)
	for range echoLimit - 1 {
		s.build("out.bin")
		s.next() // it could be a person
	}
	s.build("out.bin")
	s.write("main.go") // to end the wait
	s.next()
	if s.log.Len() > 0 {
		t.Errorf("with a save among them it says %q", s.log.String())
	}
	for range echoLimit - 1 {
		s.build("out.bin")
		s.next()
	}
	s.build("out.bin")
	said, log := io.Pipe()
	ended := make(chan error)
	go func() { ended <- s.w.wait(t.Context(), s.last, log) }() // ends with the save below
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil || !strings.Contains(line, "out.bin") {
		t.Errorf("it says %q, %v", line, err)
	}
	s.write("main.go")
	if err := <-ended; err != nil {
		t.Error(err)
	}
	s.build("out.bin", "main.go")
	s.next()        // a save during a build
	s.last = span{} // no build at all
	s.write("out.bin")
	s.next() // changed by a person
}

//go:build unix

package store

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
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
)

// Every kind of entry in one folder: none hides another, each has its verdict,
// and what is wrong says what to do.
func TestScanGivesEveryEntryAVerdict(t *testing.T) {
	dir := newFolder(t)
	for _, file := range []struct {
		name, content string
		mode          os.FileMode
		verdict       Verdict
		reason        string
	}{
		{"notes_v1.0.0", program, 0o755, Ready, ""},
		{"notes_v1.1.0-rc.1+b7", program, 0o500, Ready, ""},
		{"notes_v1.2.0" + nativeSuffix, program, 0o755, Ready, ""},
		{"notes_v1.2.0_plan9_386", "x", 0o755, WrongArch, "for plan9/386; this system is"},
		{"notes_v1.3.0.exe", "MZ", 0o755, WrongArch, "for windows/amd64"},
		{"notes_v1.4.0_linus_amd64", program, 0o755, BadName, `"linus_amd64" after the version is not an OS_ARCH`},
		{"notes_v1.4.0_linux", program, 0o755, BadName, "not an OS_ARCH"},
		{"notes_v01.4.0", program, 0o755, BadVersion, "leading zero"},
		{"notes_v1", program, 0o755, BadVersion, "write 1.0.0"},
		{"notes_v1.2.3.4", program, 0o755, BadVersion, "write 1.2.3+4"},
		{"Notes_v1.0.0", program, 0o755, BadName, "letter a-z"},
		{"no_tes_v1.0.0", program, 0o755, BadName, "letter a-z"},
		{"nötes_v1.0.0", program, 0o755, BadName, "letter a-z and has at most 32 characters a-z, 0-9 and -"},
		{strings.Repeat("n", 33) + "_v1.0.0", program, 0o755, BadName, "at most 32 characters"},
		{strings.Repeat("n", 32) + "_v1.0.0", program, 0o755, Ready, ""},
		{"notes", program, 0o755, BadName, "rename it to notes_v0.1.0"},
		{"notes-1.2.3", program, 0o755, BadName, "rename it to notes_v1.2.3"},
		{"counter_V1.0.0", program, 0o755, BadName, "rename it to counter_v1.0.0"},
		{"My_Counter_V1.0.0_linux_amd64", program, 0o755, BadName, "rename it to my-counter_v1.0.0_linux_amd64"},
		{"my_counter-V1.0.0", program, 0o755, BadName, "rename it to my-counter_v1.0.0"},
		{"Counter_v1.0.0", program, 0o755, BadName, "and -: rename it to counter_v1.0.0"},
		{"my_counter_v1.0.0.json", `{}`, 0o644, BadName, "and -: rename it to my-counter_v1.0.0.json"},
		{"My_Notes.json", `{}`, 0o644, BadName, "and -: rename it to my-notes.json"},
		{"_v1.0.0", program, 0o755, BadName, "32 characters a-z, 0-9 and -"},
		{"é.json", `{}`, 0o644, BadName, "32 characters a-z, 0-9 and -"},
		{"42", program, 0o755, BadName, "rename it to NAME_v0.1.0"},
		{"data", "x", 0o644, Ignored, "not named"},
		{"noexec_v1.0.0", program, 0o644, NotExecutable, "chmod +x " + dir + "/noexec_v1.0.0"},
		{"empty_v1.0.0", "", 0o755, Empty, "copy it again"},
		{"text_v1.0.0", "echo hello\n", 0o755, BadFormat, "#! line"},
		{"writable_v1.0.0", program, 0o777, Unsafe, "chmod go-w " + dir + "/writable_v1.0.0"},
		{"setuid_v1.0.0", program, 0o755 | os.ModeSetuid, Unsafe, "chmod ug-s"},
		{"web_v1.0.0.json", `{"command":"sh"}`, 0o644, Ready, ""},
		{"web_v1.1.0.json", `{"comand":"sh"}`, 0o644, BadManifest, `unknown member "comand": did you mean "command"?`},
		{"web_v1.2.0.json", `{"command":"no-such-program-anywhere"}`, 0o644, NoCommand, "not on PATH"},
		{"web_v1.3.0.json", `{"command":"./bin/none"}`, 0o644, NoCommand, "correct the path"},
		{"web_v1.4.0.json", `{"command":"sh","cwd":"/no/such"}`, 0o644, BadManifest, `"cwd" /no/such is not a folder`},
		{"web_v1.5.0.json", `{`, 0o644, BadManifest, ""},
		{"web_v1.6.0.json", `{"command":"sh","args":"-c"}`, 0o644, BadManifest, `member "args"`},
		{"web_v1.7.0.json", `{"command":"sh"}`, 0o666, Unsafe, "chmod go-w"},
		{"web.json", `{"required":true}`, 0o644, SettingsFile, ""},
		{"bad.json", `{"requird":true}`, 0o644, BadSettings, `unknown member "requird": did you mean "required"?`},
		{"BAD.json", `{}`, 0o644, BadName, "settings file"},
		{"notes_v1.0.0.sha256", sumOf(program) + "  notes_v1.0.0\n", 0o755, Sidecar, ""},
		{"web_v1.0.0.json.sha256", "nothing", 0o644, BadDigest, "sha256sum web_v1.0.0.json"},
		{".notes_v1.0.0", program, 0o755, Ignored, "hidden"},
		{".notes_v1.0.0.swp", program, 0o755, Ignored, "hidden"},
		{"notes_v1.0.0~", program, 0o755, Ignored, "file name"},
		{"notes_v1.0.0.tar.gz", program, 0o755, Ignored, "file name"},
		{"notes_v1.0.0.part", program, 0o755, Ignored, "file name"},
		{"README.md", "x", 0o755, Ignored, "file name"},
	} {
		put(t, dir, file.name, file.content, file.mode)
		f := scanOne(t, dir, file.name)
		if f.Verdict != file.verdict || !strings.Contains(f.Reason, file.reason) || (file.reason == "" && file.verdict != BadManifest) != (f.Reason == "") {
			t.Errorf("%s is %s (%s), want %s (%s)", file.name, f.Verdict, f.Reason, file.verdict, file.reason)
		}
	}
	l, err := Scan(dir)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(l.Files) != len(entries) {
		t.Errorf("%d entries, %d files, %v", len(entries), len(l.Files), err)
	}
	if !slices.IsSortedFunc(l.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) }) {
		t.Error("files are not sorted")
	}
}

// A FIFO would block an ordinary open for ever; nobody ever writes to this one.
func TestScanIsNotHeldUpBySpecialFiles(t *testing.T) {
	dir := newFolder(t)
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo_v1.0.0"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo.json"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo_v1.0.0.sha256"), 0o644); err != nil {
		t.Fatal(err)
	}
	socket := shortSocket(t, dir, "sock_v1.0.0")
	defer socket.Close()
	for _, name := range []string{"folder_v1.0.0", "other"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put(t, dir, "good_v1.0.0", program, 0o755)
	done := make(chan Listing, 1)
	go func() {
		l, err := Scan(dir)
		if err != nil {
			t.Error(err)
		}
		done <- l
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the scan is blocked")
	}
	for name, want := range map[string]Verdict{
		"fifo_v1.0.0": NotRegular, "fifo.json": NotRegular, "fifo_v1.0.0.sha256": NotRegular,
		"sock_v1.0.0": NotRegular, "folder_v1.0.0": NotRegular, "other": Ignored, "good_v1.0.0": Ready,
	} {
		if f := scanOne(t, dir, name); f.Verdict != want {
			t.Errorf("%s is %s (%s), want %s", name, f.Verdict, f.Reason, want)
		}
	}
	contains(t, scanOne(t, dir, "fifo_v1.0.0").Reason, "named pipe")
	contains(t, scanOne(t, dir, "sock_v1.0.0").Reason, "socket")
	contains(t, scanOne(t, dir, "folder_v1.0.0").Reason, "folder")
}

// shortSocket binds where the path is short enough and moves the socket.
func shortSocket(t *testing.T, dir, name string) net.Listener {
	t.Helper()
	short, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(short) })
	listener, err := net.Listen("unix", filepath.Join(short, "s"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(short, "s"), filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
	return listener
}

func TestScanLinks(t *testing.T) {
	dir := newFolder(t)
	outside := put(t, t.TempDir(), "elsewhere", program, 0o755)
	inside := put(t, dir, "builds/notes", program, 0o755)
	for name, target := range map[string]string{
		"in_v1.0.0":              inside,
		"relative_v1.0.0":        "builds/notes",
		"out_v1.0.0":             outside,
		"up_v1.0.0":              "../../" + filepath.Base(filepath.Dir(outside)) + "/elsewhere",
		"dangling_v1.0.0":        "gone",
		"loop_v1.0.0":            "loop_v1.0.0",
		"out.json":               outside,
		"folder_v1.0.0":          "builds",
		"device_v1.0.0":          "/dev/zero",
		"relative_v1.0.0.sha256": "/etc/passwd",
		"unimportant":            "gone",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]Verdict{
		"in_v1.0.0": Ready, "relative_v1.0.0": Ready, "out_v1.0.0": Unsafe, "up_v1.0.0": Unreadable,
		"dangling_v1.0.0": Unreadable, "loop_v1.0.0": Unreadable, "out.json": Unsafe, "folder_v1.0.0": NotRegular,
		"device_v1.0.0": Unsafe, "relative_v1.0.0.sha256": Unsafe, "unimportant": Ignored,
	} {
		if f := scanOne(t, dir, name); f.Verdict != want && !(name == "up_v1.0.0" && f.Verdict == Unsafe) {
			t.Errorf("%s is %s (%s), want %s", name, f.Verdict, f.Reason, want)
		}
	}
	real, err := filepath.EvalSymlinks(outside)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, scanOne(t, dir, "out_v1.0.0").Reason, filepath.Join(dir, "out_v1.0.0"), real)
	contains(t, scanOne(t, dir, "dangling_v1.0.0").Reason, "gone", "no such file")
}

func TestScanFolderMayBeALink(t *testing.T) {
	dir := newFolder(t)
	put(t, dir, "notes_v1.0.0", program, 0o755)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	f := scanOne(t, link, "notes_v1.0.0")
	if f.Verdict != Ready || f.Path != filepath.Join(link, "notes_v1.0.0") {
		t.Errorf("%+v", f)
	}
}

func TestScanRefusesAFolderItCannotTrust(t *testing.T) {
	for _, test := range []struct {
		name    string
		prepare func(t *testing.T, dir string)
		reason  FolderReason
		message []string
	}{
		{"missing", func(t *testing.T, dir string) { os.Remove(dir) }, FolderMissing, []string{"does not exist", "mkdir -p -m 700"}},
		{"dangling_link", func(t *testing.T, dir string) {
			os.Remove(dir)
			os.Symlink("gone", dir)
		}, FolderFailed, []string{"leads nowhere"}},
		{"file", func(t *testing.T, dir string) {
			os.Remove(dir)
			os.WriteFile(dir, nil, 0o600)
		}, FolderNotDir, []string{"not a folder"}},
		{"fifo", func(t *testing.T, dir string) {
			os.Remove(dir)
			syscall.Mkfifo(dir, 0o600)
		}, FolderNotDir, []string{"not a folder"}},
		{"group_writable", func(t *testing.T, dir string) { os.Chmod(dir, 0o775) }, FolderWritable, []string{"mode 0775", "chmod go-w "}},
		{"world_writable", func(t *testing.T, dir string) { os.Chmod(dir, 0o777) }, FolderWritable, []string{"mode 0777", "chmod go-w "}},
		{"sticky_is_not_enough", func(t *testing.T, dir string) { os.Chmod(dir, 0o777|os.ModeSticky) }, FolderWritable, []string{"mode 0777"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := newFolder(t)
			test.prepare(t, dir)
			_, err := Scan(dir)
			var folderError *FolderError
			if !errors.As(err, &folderError) || folderError.Reason != test.reason || folderError.Path != dir {
				t.Fatalf("got %v, want %s", err, test.reason)
			}
			contains(t, err.Error(), test.message...)
			if errors.Is(err, fs.ErrNotExist) != (test.reason == FolderMissing || test.name == "dangling_link") {
				t.Errorf("unwraps to the wrong cause: %v", err)
			}
		})
	}
}

// Somebody else's folder: the root folder for an ordinary user, a given-away one
// for root.
func TestScanRefusesAForeignFolder(t *testing.T) {
	dir := "/"
	if os.Geteuid() == 0 {
		dir = newFolder(t)
		if err := os.Chown(dir, 12345, -1); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Scan(dir)
	var folderError *FolderError
	if !errors.As(err, &folderError) || folderError.Reason != FolderForeign || folderError.UID == os.Geteuid() {
		t.Fatalf("got %v", err)
	}
	contains(t, err.Error(), "belongs to uid", "chown")
}

func TestScanQuotesPathsInItsAdvice(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's mine")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	_, err := Scan(dir)
	var folderError *FolderError
	if !errors.As(err, &folderError) {
		t.Fatal(err)
	}
	// The advice works when a shell reads it.
	command, ok := strings.CutPrefix(folderError.Fix, "run: ")
	if output, err := exec.Command("/bin/sh", "-c", command).CombinedOutput(); !ok || err != nil {
		t.Fatalf("%s: %v: %s", folderError.Fix, err, output)
	}
	if _, err := Scan(dir); err != nil {
		t.Error(err)
	}
}

func TestScanReadOnlyFolder(t *testing.T) {
	dir := newFolder(t)
	put(t, dir, "notes_v1.0.0", program, 0o555)
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(dir, 0o755) }) // so that it can be removed
	if f := scanOne(t, dir, "notes_v1.0.0"); f.Verdict != Ready {
		t.Errorf("%+v", f)
	}
}

func TestScanBoundsTheFolder(t *testing.T) {
	dir := newFolder(t)
	for _, name := range []string{"a", "b", "c"} {
		put(t, dir, name, "", 0o644)
	}
	root, err := openFolder(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if names, err := readEntries(root, dir, 3); err != nil || !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Errorf("%q, %v", names, err)
	}
	_, err = readEntries(root, dir, 2)
	var folderError *FolderError
	if !errors.As(err, &folderError) || folderError.Reason != FolderTooLarge {
		t.Errorf("got %v", err)
	}
}

// The listing goes to people's scripts and over the control socket.
func TestListingInJSON(t *testing.T) {
	dir := newFolder(t)
	put(t, dir, "a_v1.0.0+x"+nativeSuffix, program, 0o755)
	put(t, dir, "b_v1.0.0.json", `{"command":"sh"}`, 0o644)
	put(t, dir, "c", "", 0o644)
	l, err := Scan(dir)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, string(raw), `"kind":"binary"`, `"kind":"manifest"`, `"version":"1.0.0+x"`, `"verdict":"ready"`, `"verdict":"ignored"`, `"name":"a"`)
	var again Listing
	if err := json.Unmarshal(raw, &again); err != nil {
		t.Fatal(err)
	}
	for i, f := range again.Files {
		// Only the time's location may differ.
		if !f.ModTime.Equal(l.Files[i].ModTime) {
			t.Errorf("time %s became %s", l.Files[i].ModTime, f.ModTime)
		}
		f.ModTime = l.Files[i].ModTime
		if f != l.Files[i] {
			t.Errorf("%+v became %+v", l.Files[i], f)
		}
	}
	var kind Kind
	if err := kind.UnmarshalText([]byte("script")); err == nil {
		t.Error("an unknown kind was accepted")
	}
}

func TestSettling(t *testing.T) {
	dir := newFolder(t)
	path := put(t, dir, "notes_v1.0.0", program, 0o755)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		age  time.Duration
		o    Options
		want Verdict
	}{
		{0, Options{}, Settling},
		{499 * time.Millisecond, Options{}, Settling},
		{500 * time.Millisecond, Options{}, Ready},
		{-time.Hour, Options{}, Ready}, // a clock that was set back must not block a plugin for ever
		{time.Second, Options{SettleFor: time.Minute}, Settling},
		{0, Options{SettleFor: -1}, Ready},
	} {
		test.o.Now = info.ModTime().Add(test.age)
		l, err := ScanWith(dir, test.o)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Files[0].Verdict; got != test.want {
			t.Errorf("aged %s with %+v it is %s, want %s", test.age, test.o, got, test.want)
		}
	}
}

func TestScanSettledWaits(t *testing.T) {
	dir := newFolder(t)
	path := put(t, dir, "notes_v1.0.0", program, 0o755)
	now := time.Now()
	if err := os.Chtimes(path, now, now); err != nil {
		t.Fatal(err)
	}
	if f := scanOne(t, dir, "notes_v1.0.0"); f.Verdict != Settling && time.Since(now) < settleFor {
		t.Errorf("%+v", f)
	}
	l, err := ScanSettled(context.Background(), dir)
	if err != nil || l.Files[0].Verdict != Ready {
		t.Errorf("%+v, %v", l.Files, err)
	}

	far := time.Now()
	if err := os.Chtimes(path, far, far); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("enough"))
	if _, err := ScanSettled(ctx, dir); err == nil && time.Since(far) < settleFor {
		t.Error("an ended context did not end the wait")
	}
}

func TestAmbiguous(t *testing.T) {
	other := program + "#\n"
	for _, test := range []struct {
		name  string
		files map[string]string
		want  map[string]Verdict
	}{
		{"binary_and_manifest", map[string]string{"a_v1.0.0": program, "a_v1.0.0.json": `{"command":"sh"}`},
			map[string]Verdict{"a_v1.0.0": Ambiguous, "a_v1.0.0.json": Ambiguous}},
		{"build_metadata", map[string]string{"a_v1.0.0+x": program, "a_v1.0.0+y": other},
			map[string]Verdict{"a_v1.0.0+x": Ambiguous, "a_v1.0.0+y": Ambiguous}},
		{"equal_sizes_other_bytes", map[string]string{"a_v1.0.0+x": program + "1", "a_v1.0.0+y": program + "2"},
			map[string]Verdict{"a_v1.0.0+x": Ambiguous, "a_v1.0.0+y": Ambiguous}},
		{"same_bytes", map[string]string{"a_v1.0.0+x": program, "a_v1.0.0": program},
			map[string]Verdict{"a_v1.0.0+x": Ready, "a_v1.0.0": Ready}},
		{"three_of_which_two_agree", map[string]string{"a_v1.0.0": program, "a_v1.0.0+x": program, "a_v1.0.0+y": other},
			map[string]Verdict{"a_v1.0.0": Ambiguous, "a_v1.0.0+x": Ambiguous, "a_v1.0.0+y": Ambiguous}},
		{"native_beats_generic", map[string]string{"a_v1.0.0": program, "a_v1.0.0" + nativeSuffix: other},
			map[string]Verdict{"a_v1.0.0": Ready, "a_v1.0.0" + nativeSuffix: Ready}},
		{"another_plugin", map[string]string{"a_v1.0.0": program, "b_v1.0.0": other},
			map[string]Verdict{"a_v1.0.0": Ready, "b_v1.0.0": Ready}},
		{"a_prerelease_is_another_version", map[string]string{"a_v1.0.0": program, "a_v1.0.0-rc1": other},
			map[string]Verdict{"a_v1.0.0": Ready, "a_v1.0.0-rc1": Ready}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := newFolder(t)
			for name, content := range test.files {
				put(t, dir, name, content, 0o755)
			}
			for name, want := range test.want {
				f := scanOne(t, dir, name)
				if f.Verdict != want {
					t.Errorf("%s is %s (%s), want %s", name, f.Verdict, f.Reason, want)
				}
				if want == Ambiguous {
					contains(t, f.Reason, "keep one of them")
				}
			}
		})
	}
}

// A server behind a manifest has one session a process: it cannot be shared, which is said of the manifest.
func TestNotShareable(t *testing.T) {
	dir := newFolder(t)
	put(t, dir, "wrapped_v1.0.0.json", `{"command":"/bin/sh"}`, 0o644)
	put(t, dir, "wrapped.json", `{"lifetime":"shared"}`, 0o644)
	put(t, dir, "other_v1.0.0.json", `{"command":"/bin/sh"}`, 0o644)
	put(t, dir, "program_v1.0.0", "#!/bin/sh\n", 0o755)
	put(t, dir, "program.json", `{"lifetime":"shared"}`, 0o644)
	l, err := ScanWith(dir, Options{SettleFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range l.Files {
		want := Ready
		switch filepath.Base(f.Path) {
		case "wrapped_v1.0.0.json":
			want = NotShareable
			if !strings.Contains(f.Reason, "wrapped.json") || !strings.Contains(f.Reason, `take "lifetime" out`) {
				t.Errorf("reason %q", f.Reason)
			}
		case "wrapped.json", "program.json":
			want = SettingsFile
		}
		if f.Verdict != want {
			t.Errorf("%s is %s, %s; want %s", filepath.Base(f.Path), f.Verdict, f.Reason, want)
		}
	}
	if _, err := Choose(l.Of("wrapped"), Choice{}); !errors.Is(err, ErrNotReady) || !strings.Contains(err.Error(), "one session") {
		t.Errorf("%v", err)
	}
}

func TestCandidatesAreSorted(t *testing.T) {
	dir := newFolder(t)
	for _, name := range []string{
		"a_v1.0.0", "a_v1.10.0", "a_v1.9.0", "a_v1.9.0" + nativeSuffix, "a_v2.0.0-rc1", "a_v2.0.0_plan9_386", "ab_v9.0.0",
	} {
		put(t, dir, name, program, 0o755)
	}
	put(t, dir, "a_v3.0.0", "", 0o755)
	l, err := Scan(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range l.Candidates("a") {
		got = append(got, filepath.Base(f.Path))
	}
	want := []string{"a_v2.0.0-rc1", "a_v1.10.0", "a_v1.9.0" + nativeSuffix, "a_v1.9.0", "a_v1.0.0"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if files := l.Of("a"); len(files) != 7 || files[0].Verdict != Empty {
		t.Errorf("Of must keep every verdict: %+v", files)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func TestWrongSystemNamesBoth(t *testing.T) {
	dir := newFolder(t)
	put(t, dir, "a_v1.0.0_plan9_386", program, 0o755)
	contains(t, scanOne(t, dir, "a_v1.0.0_plan9_386").Reason, "plan9/386", runtime.GOOS+"/"+runtime.GOARCH)
}

// Names must find the plugins that Scan finds, and never more than it could find once their files are repaired.
func TestNamesFindsWhatScanFinds(t *testing.T) {
	dir := newFolder(t)
	for _, entry := range []string{"a_v1.0.0", "b_v2.0.0.json", "b.json", "c_v1.0.0_linux_amd64", "README.md", ".hidden_v1.0.0", "Bad_v1.0.0", "d_v1"} {
		if err := os.WriteFile(filepath.Join(dir, entry), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	scanned, err := Scan(dir)
	if err != nil {
		t.Fatal(err)
	}
	named, err := Names(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(named.Files) != len(scanned.Files) {
		t.Fatalf("%d names, %d files", len(named.Files), len(scanned.Files))
	}
	for i, f := range scanned.Files {
		n := named.Files[i]
		if n.Path != f.Path || n.Name != f.Name || n.Version != f.Version || n.Kind != f.Kind || n.OS != f.OS || n.Arch != f.Arch {
			t.Errorf("by name %+v, by content %+v", n, f)
		}
		if n.Verdict == Ready {
			t.Errorf("%s: ready without a look at it", n.Path)
		}
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if l, err := Names(dir); err == nil {
		t.Errorf("a folder that others may write was listed: %+v", l)
	}
}

func TestNoNameIsAdvisedWhereNoneIsPlain(t *testing.T) {
	for _, entry := range []string{"nötes_v1.0.0", "_v1.0.0", "é.json", "42_v1.0.0", strings.Repeat("N", 33) + "_v1.0.0", "notes_v1.0.0", "Notes_v1"} {
		if advice := renameAdvice(entry); advice != "" {
			t.Errorf("%q%s", entry, advice)
		}
	}
}

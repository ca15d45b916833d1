//go:build linux || darwin

package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestSeed_B13_folder_is_judged_by_owner_type_and_mode(t *testing.T) {
	type want struct {
		reason  Reason // "" means the folder passes
		symlink bool
		culprit string // relative to the base, "" for the folder itself
		remedy  string
	}
	cases := []struct {
		name     string
		asRoot   bool
		build    func(t *testing.T, base string) (dir string)
		expected want
	}{
		{"own_0700_passes", false, func(t *testing.T, base string) string {
			return mkdir(t, filepath.Join(base, "d"), 0o700)
		}, want{}},
		{"own_0755_passes", false, func(t *testing.T, base string) string {
			return mkdir(t, filepath.Join(base, "d"), 0o755)
		}, want{}},
		{"own_group_writable", false, func(t *testing.T, base string) string {
			return mkdir(t, filepath.Join(base, "d"), 0o775)
		}, want{reason: ReasonOwnWritable, remedy: "chmod go-w"}},
		{"own_world_writable_even_if_sticky", false, func(t *testing.T, base string) string {
			return mkdir(t, filepath.Join(base, "d"), 0o777|fs.ModeSticky)
		}, want{reason: ReasonOwnWritable, remedy: "chmod go-w"}},
		{"link_to_a_good_folder", false, func(t *testing.T, base string) string {
			target := mkdir(t, filepath.Join(base, "t"), 0o700)
			return symlink(t, target, filepath.Join(base, "d"))
		}, want{reason: ReasonForeign, symlink: true, remedy: "removes the link and nothing else"}},
		{"dangling_link", false, func(t *testing.T, base string) string {
			return symlink(t, filepath.Join(base, "nowhere"), filepath.Join(base, "d"))
		}, want{reason: ReasonForeign, symlink: true, remedy: "removes the link"}},
		{"plain_file", false, func(t *testing.T, base string) string {
			dir := filepath.Join(base, "d")
			if err := os.WriteFile(dir, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return dir
		}, want{reason: ReasonForeign, remedy: "ls -ld"}},
		{"named_pipe_does_not_hang_the_check", false, func(t *testing.T, base string) string {
			dir := filepath.Join(base, "d")
			if err := syscall.Mkfifo(dir, 0o600); err != nil {
				t.Fatal(err)
			}
			return dir
		}, want{reason: ReasonForeign}},
		{"strangers_folder", true, func(t *testing.T, base string) string {
			dir := mkdir(t, filepath.Join(base, "d"), 0o700)
			chown(t, dir, strangerUID)
			return dir
		}, want{reason: ReasonForeign, remedy: "impostor"}},
		{"group_writable_folder_above", false, func(t *testing.T, base string) string {
			return mkdir(t, filepath.Join(mkdir(t, filepath.Join(base, "up"), 0o770), "d"), 0o700)
		}, want{reason: ReasonOwnWritable, culprit: "up", remedy: "chmod go-w"}},
		{"sticky_folder_above_passes", false, func(t *testing.T, base string) string {
			return mkdir(t, filepath.Join(mkdir(t, filepath.Join(base, "up"), 0o777|fs.ModeSticky), "d"), 0o700)
		}, want{}},
		{"strangers_folder_above", true, func(t *testing.T, base string) string {
			up := mkdir(t, filepath.Join(base, "up"), 0o755)
			dir := mkdir(t, filepath.Join(up, "d"), 0o700)
			chown(t, up, strangerUID)
			return dir
		}, want{reason: ReasonForeign, culprit: "up", remedy: "SOX_HOME"}},
		{"own_link_above_is_followed", false, func(t *testing.T, base string) string {
			mkdir(t, filepath.Join(mkdir(t, filepath.Join(base, "real"), 0o700), "d"), 0o700)
			return filepath.Join(symlink(t, "./../"+filepath.Base(base)+"/real/", filepath.Join(base, "up")), "d")
		}, want{}},
		{"own_link_above_into_a_writable_folder", false, func(t *testing.T, base string) string {
			loose := mkdir(t, filepath.Join(base, "loose"), 0o777)
			mkdir(t, filepath.Join(mkdir(t, filepath.Join(loose, "real"), 0o700), "d"), 0o700)
			return filepath.Join(symlink(t, filepath.Join(loose, "real"), filepath.Join(base, "up")), "d")
		}, want{reason: ReasonOwnWritable, culprit: "loose", remedy: "chmod go-w"}},
		{"strangers_link_above", true, func(t *testing.T, base string) string {
			mkdir(t, filepath.Join(mkdir(t, filepath.Join(base, "real"), 0o700), "d"), 0o700)
			up := symlink(t, filepath.Join(base, "real"), filepath.Join(base, "up"))
			chown(t, up, strangerUID)
			return filepath.Join(up, "d")
		}, want{reason: ReasonForeign, culprit: "up", symlink: true, remedy: "removes the link"}},
		{"file_above", false, func(t *testing.T, base string) string {
			if err := os.WriteFile(filepath.Join(base, "up"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return filepath.Join(base, "up", "d")
		}, want{reason: ReasonForeign, culprit: "up"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.asRoot {
				needRoot(t)
			}
			base := privateDir(t)
			dir := c.build(t, base)
			before := entries(t, base)
			for name, check := range map[string]func(string) error{"CheckFolder": CheckFolder, "EnsureFolder": EnsureFolder} {
				err := check(dir)
				if after := entries(t, base); after != before {
					t.Errorf("%s changed something:\n%s\n%s", name, before, after)
				}
				if c.expected.reason == "" {
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
					continue
				}
				var refused *FolderError
				if !errors.As(err, &refused) {
					t.Fatalf("%s: %v, want a FolderError", name, err)
				}
				culprit := dir
				if c.expected.culprit != "" {
					culprit = filepath.Join(base, c.expected.culprit)
				}
				if refused.Reason != c.expected.reason || refused.IsSymlink != c.expected.symlink || refused.Asked != dir || !sameName(refused.Dir, culprit) {
					t.Errorf("%s: %+v, want %+v about %q", name, refused, c.expected, culprit)
				}
				info, statErr := os.Lstat(culprit)
				if statErr != nil {
					t.Fatal(statErr)
				}
				if refused.ExpectedUID != os.Geteuid() || refused.ActualUID != ownerOf(info) || refused.Mode != info.Mode() {
					t.Errorf("%s: %+v, the entry has uid %d, mode %v", name, refused, ownerOf(info), info.Mode())
				}
				if text := err.Error(); !strings.Contains(text, c.expected.remedy) || !strings.Contains(text, string(c.expected.reason)) {
					t.Errorf("%s: message lacks %q or its reason: %s", name, c.expected.remedy, text)
				}
			}
		})
	}
}

// sameName: two spellings of one entry; on macOS the check walks through /private/tmp where the test says /tmp.
func sameName(a, b string) bool { return a == b || a == "/private"+b }

func symlink(t *testing.T, target, link string) string {
	t.Helper()
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	return link
}

func TestSeed_B13_fallback_root_needs_0700_exactly(t *testing.T) {
	root := filepath.Join(privateDir(t), "sox-501") // stands in for the real one, which this user's sockets may be using
	if err := inspectFolder(root, root, false); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("missing root: %v, want fs.ErrNotExist", err)
	}
	if err := inspectFolder(root, root, true); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(root); err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("made with mode %v, %v", info.Mode(), err)
	}
	for _, mode := range []fs.FileMode{0o755, 0o710, 0o500, 0o777} {
		if err := os.Chmod(root, mode); err != nil {
			t.Fatal(err)
		}
		err := inspectFolder(root, root, true)
		var refused *FolderError
		if !errors.As(err, &refused) || refused.Reason != ReasonFallbackMode || refused.Mode.Perm() != mode {
			t.Fatalf("mode %o: %v", mode, err)
		}
		if want := "chmod 700 " + root; !strings.Contains(err.Error(), want) {
			t.Errorf("message lacks %q: %v", want, err)
		}
		if outcome, err := tightenUnless(root, root, nil); outcome != OutcomeSkippedNotOwned || err != nil {
			t.Errorf("Tighten(%s) = %q, %v: the root is for a person to repair", root, outcome, err)
		}
	}
}

func TestSeed_B13_missing_folder_is_not_unsafe(t *testing.T) {
	dir := filepath.Join(privateDir(t), "a", "b")
	err := CheckFolder(dir)
	var refused *FolderError
	if !errors.Is(err, fs.ErrNotExist) || errors.As(err, &refused) {
		t.Fatalf("CheckFolder: %v, want fs.ErrNotExist and nothing more", err)
	}
	path := filepath.Join(dir, "s.sock")
	if found, err := Probe(t.Context(), path); found != Absent || err != nil {
		t.Errorf("Probe: %v, %v", found, err)
	}
	if _, err := Dial(t.Context(), path); !errors.Is(err, fs.ErrNotExist) || errors.As(err, &refused) {
		t.Errorf("Dial: %v, want an ordinary failure that a re-dial may cure", err)
	}
	if err := EnsureFolder(dir); err != nil {
		t.Fatal(err)
	}
	for _, made := range []string{dir, filepath.Dir(dir)} {
		if info, err := os.Lstat(made); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s made with mode %v, %v", made, info.Mode(), err)
		}
	}
}

func TestSeed_B13_nothing_is_created_below_an_unsafe_folder(t *testing.T) {
	loose := mkdir(t, filepath.Join(privateDir(t), "loose"), 0o777)
	before := entries(t, loose)
	var refused *FolderError
	if err := EnsureFolder(filepath.Join(loose, "a", "b")); !errors.As(err, &refused) {
		t.Fatalf("EnsureFolder: %v", err)
	}
	if after := entries(t, loose); after != before {
		t.Fatalf("before:\n%safter:\n%s", before, after)
	}
}

func TestSeed_B13_every_user_of_a_folder_refuses_an_unsafe_one(t *testing.T) {
	dir := privateDir(t)
	path := filepath.Join(dir, "s.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(dir, 0o770); err != nil {
		t.Fatal(err)
	}
	before := entries(t, dir)
	uses := map[string]func() error{
		"probe": func() error {
			found, err := Probe(t.Context(), path)
			if found != Unknown {
				t.Errorf("probe says %v", found)
			}
			return err
		},
		"dial":    func() error { _, err := Dial(t.Context(), path); return err },
		"listen":  func() error { _, err := Listen(path); return err },
		"lock":    func() error { _, err := TryLock(path + ".other"); return err },
		"ensure":  func() error { return EnsureFolder(dir) },
		"waiting": func() error { _, err := WaitLock(context.Background(), path+".other"); return err },
	}
	for name, use := range uses {
		err := use()
		var refused interface{ Code() string }
		if !errors.As(err, &refused) || refused.Code() != "E_UDS_DIR_UNSAFE" {
			t.Errorf("%s: %v, want E_UDS_DIR_UNSAFE", name, err)
		}
	}
	if found, err := Probe(t.Context(), filepath.Join(dir, "none.sock")); found != Absent || err != nil {
		t.Errorf("where there is no socket the folder does not matter yet: %v, %v", found, err)
	}
	if after := entries(t, dir); after != before {
		t.Errorf("before:\n%safter:\n%s", before, after)
	}
}

func TestSeed_B13_remedies_are_right_and_never_destroy(t *testing.T) {
	uid := 501
	root := FallbackRoot(uid)
	cases := []struct {
		name string
		err  FolderError
		has  []string
	}{
		{"own_writable", FolderError{Reason: ReasonOwnWritable, Asked: "/home/u/my run", Dir: "/home/u/my run", ActualUID: uid, Mode: fs.ModeDir | 0o775},
			[]string{"chmod go-w '/home/u/my run'", "do not delete", "mode 0775"}},
		{"fallback_mode", FolderError{Reason: ReasonFallbackMode, Asked: root, Dir: root, ActualUID: uid, Mode: fs.ModeDir | 0o755},
			[]string{"chmod 700 /tmp/sox-501", "mode 0755"}},
		{"foreign_link", FolderError{Reason: ReasonForeign, Asked: "/home/u/it's", Dir: "/home/u/it's", ActualUID: uid, Mode: fs.ModeSymlink | 0o777, IsSymlink: true},
			[]string{"symbolic link", `ls -ld '/home/u/it'\''s'`, "impostor", "removes the link and nothing else", "mv "}},
		{"foreign_fallback_root", FolderError{Reason: ReasonForeign, Asked: root, Dir: root, ActualUID: 7, Mode: fs.ModeDir | fs.ModeSticky | 0o777},
			[]string{"another user", "only its owner or an administrator", "SOX_HOME to a shorter path", "mode 1777", "owner uid 7, expected uid 501"}},
		{"foreign_in_the_data_root", FolderError{Reason: ReasonForeign, Asked: "/home/u/.sox/run", Dir: "/home/u/.sox/run", ActualUID: 0, Mode: fs.ModeDir | 0o755},
			[]string{"another user", "move it aside", "mv /home/u/.sox/run /home/u/.sox/run.aside"}},
		{"writable_folder_of_root_above", FolderError{Reason: ReasonForeign, Asked: "/srv/x/run", Dir: "/srv", ActualUID: 0, Mode: fs.ModeDir | 0o775},
			[]string{`because of "/srv" above it`, "others can write in it", "an administrator can run: chmod go-w /srv", "or set SOX_HOME"}},
		{"strangers_folder_above", FolderError{Reason: ReasonForeign, Asked: "/home/x/run", Dir: "/home/x", ActualUID: 7, Mode: fs.ModeDir | 0o755},
			[]string{`because of "/home/x" above it`, "another user", "or set SOX_HOME"}},
		{"plain_file", FolderError{Reason: ReasonForeign, Asked: "-x", Dir: "-x", ActualUID: uid, Mode: 0o644}, []string{"not a folder", "ls -ld '-x'"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.err.ExpectedUID = uid
			text := fmt.Errorf("listen: %w", &c.err).Error()
			for _, part := range c.has {
				if !strings.Contains(text, part) {
					t.Errorf("lacks %q: %s", part, text)
				}
			}
			for _, never := range []string{"rm -r", "rm -f", "-rf", "rmdir", "777 "} {
				if strings.Contains(text, never) {
					t.Errorf("has %q: %s", never, text)
				}
			}
			if strings.Contains(text, "\n") {
				t.Errorf("more than one line: %q", text)
			}
			if c.err.Code() != "E_UDS_DIR_UNSAFE" {
				t.Errorf("code %q", c.err.Code())
			}
		})
	}
}

func TestSeed_B14_tighten(t *testing.T) {
	cases := []struct {
		name    string
		asRoot  bool
		build   func(t *testing.T, dir string)
		outcome Outcome
		mode    fs.FileMode // afterwards; 0: as before
	}{
		{"missing_folder_is_absent", false, func(*testing.T, string) {}, OutcomeAbsent, 0},
		{"tight_folder_is_ok", false, func(t *testing.T, dir string) { mkdir(t, dir, 0o755) }, OutcomeOK, 0},
		{"group_writable_is_tightened", false, func(t *testing.T, dir string) { mkdir(t, dir, 0o775) }, OutcomeTightened, 0o755},
		{"other_bits_are_kept", false, func(t *testing.T, dir string) { mkdir(t, dir, 0o733|fs.ModeSticky|fs.ModeSetgid) }, OutcomeTightened, 0o711 | fs.ModeSticky | fs.ModeSetgid},
		{"link_is_skipped_and_its_target_untouched", false, func(t *testing.T, dir string) { symlink(t, mkdir(t, dir+".target", 0o777), dir) }, OutcomeSkippedNotOwned, 0},
		{"file_is_skipped", false, func(t *testing.T, dir string) {
			if err := errors.Join(os.WriteFile(dir, nil, 0o600), os.Chmod(dir, 0o666)); err != nil {
				t.Fatal(err)
			}
		}, OutcomeSkippedNotOwned, 0},
		{"strangers_folder_is_skipped", true, func(t *testing.T, dir string) { chown(t, mkdir(t, dir, 0o777), strangerUID) }, OutcomeSkippedNotOwned, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.asRoot {
				needRoot(t)
			}
			base := privateDir(t)
			dir := filepath.Join(base, "d")
			c.build(t, dir)
			before := entries(t, base)
			var seen []string
			outcome, err := Tighten(dir, func(dir string, before, after fs.FileMode) {
				seen = append(seen, fmt.Sprint(dir, before&^fs.ModeDir, after&^fs.ModeDir))
			})
			if err != nil || outcome != c.outcome {
				t.Fatalf("Tighten = %q, %v, want %q", outcome, err, c.outcome)
			}
			if c.outcome != OutcomeTightened {
				if after := entries(t, base); after != before || seen != nil {
					t.Fatalf("changed something and told %v:\n%s\n%s", seen, before, after)
				}
				return
			}
			info, err := os.Lstat(dir)
			if err != nil || info.Mode() != c.mode|fs.ModeDir {
				t.Fatalf("mode %v, %v, want %v", info.Mode(), err, c.mode)
			}
			if len(seen) != 1 || !strings.HasSuffix(seen[0], c.mode.String()) {
				t.Errorf("observer saw %q", seen)
			}
			if err := CheckFolder(dir); err != nil {
				t.Errorf("tightened folder still fails: %v", err)
			}
			if outcome, err := Tighten(dir); outcome != OutcomeOK || err != nil {
				t.Errorf("second time: %q, %v", outcome, err)
			}
		})
	}
}

//go:build unix

package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestStage(t *testing.T) {
	h, dir := newHome(t), newFolder(t)
	put(t, dir, "notes_v1.2.0-rc.1+b"+nativeSuffix, program, 0o755)
	f := scanOne(t, dir, "notes_v1.2.0-rc.1+b"+nativeSuffix)
	b, err := h.Stage(context.Background(), f)
	if err != nil {
		t.Fatal(err)
	}
	want := Build{
		Plugin: "notes", Version: f.Version, SHA256: sumOf(program), Kind: Binary, Size: int64(len(program)),
		Path: filepath.Join(h.Dir(), "store", sumOf(program), "notes_v1.2.0-rc.1+b"),
	}
	if b != want {
		t.Errorf("got  %+v\nwant %+v", b, want)
	}
	if output, err := exec.Command(b.Path).Output(); err != nil || string(output) != "ok\n" {
		t.Errorf("running it: %q, %v", output, err)
	}
	for path, mode := range map[string]os.FileMode{
		h.Dir(): 0o700, filepath.Join(h.Dir(), "store"): 0o700, filepath.Dir(b.Path): 0o700, b.Path: 0o500,
	} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v; want %o", path, info.Mode(), err, mode)
		}
	}
	if n := temporaries(t, filepath.Join(h.Dir(), "store")); n != 0 {
		t.Errorf("%d temporary files stay", n)
	}

	before := tree(t, b.Path)
	again, err := h.Stage(context.Background(), f)
	if err != nil || again != b || tree(t, b.Path) != before {
		t.Errorf("staging twice: %+v, %v", again, err)
	}
	if err := h.Verify(b); err != nil {
		t.Error(err)
	}
	found, err := h.Lookup("notes", b.Ref())
	if err != nil || found != b {
		t.Errorf("lookup: %+v, %v", found, err)
	}
}

func TestStageManifest(t *testing.T) {
	h, dir := newHome(t), newFolder(t)
	content := `{"command":"sh","args":["-c","x y"],"env":{"E":""}}`
	b := stageFile(t, h, dir, "web_v1.0.0.json", content)
	want := &ManifestSpec{Command: "sh", Args: []string{"-c", "x y"}, Env: map[string]string{"E": ""}}
	if b.Kind != Manifest || !reflect.DeepEqual(b.Manifest, want) || filepath.Base(b.Path) != "web_v1.0.0.json" {
		t.Errorf("%+v", b)
	}
	found, err := h.Lookup("web", b.Ref())
	if err != nil || !reflect.DeepEqual(found, b) {
		t.Errorf("lookup: %+v, %v", found, err)
	}
}

// Two versions may have the same bytes; each keeps its own name.
func TestStageSameBytesUnderTwoNames(t *testing.T) {
	h, dir := newHome(t), newFolder(t)
	first := stageFile(t, h, dir, "a_v1.0.0", program)
	second := stageFile(t, h, dir, "b_v2.0.0", program)
	if first.SHA256 != second.SHA256 || first.Path == second.Path {
		t.Fatalf("%+v %+v", first, second)
	}
	for _, b := range []Build{first, second} {
		if err := h.Verify(b); err != nil {
			t.Error(err)
		}
	}
	if _, err := h.Lookup("a", second.Ref()); !errors.Is(err, ErrNotStaged) {
		t.Errorf("a name and version that were never staged were found: %v", err)
	}
}

// Whatever happens to the dropped file, the staged copy stays what it was.
func TestStagedCopyIsIndependent(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, path string) error{
		"overwritten": func(t *testing.T, path string) error { return os.WriteFile(path, []byte("evil"), 0o755) },
		"renamed_over": func(t *testing.T, path string) error {
			return os.Rename(put(t, filepath.Dir(path), ".new", "evil", 0o755), path)
		},
		"removed":   func(t *testing.T, path string) error { return os.Remove(path) },
		"truncated": func(t *testing.T, path string) error { return os.Truncate(path, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			h, dir := newHome(t), newFolder(t)
			b := stageFile(t, h, dir, "a_v1.0.0", program)
			if err := change(t, filepath.Join(dir, "a_v1.0.0")); err != nil {
				t.Fatal(err)
			}
			found, err := h.Lookup("a", b.Ref())
			if err != nil || found != b {
				t.Errorf("%+v, %v", found, err)
			}
			if output, err := exec.Command(b.Path).Output(); err != nil || string(output) != "ok\n" {
				t.Errorf("running it: %q, %v", output, err)
			}
		})
	}
}

// cutStaged shortens a staged file, which takes its owner two steps.
func cutStaged(path string, size int64) error {
	if err := os.Chmod(path, 0o700); err != nil {
		return err
	}
	return os.Truncate(path, size)
}

func TestVerifyFindsEveryChange(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"other_bytes": func(path string) error {
			if err := os.Chmod(path, 0o700); err != nil {
				return err
			}
			return os.WriteFile(path, []byte("#!/bin/sh\necho no\n"), 0o700)
		},
		"cut":  func(path string) error { return cutStaged(path, 5) },
		"gone": os.Remove,
		"replaced_by_link": func(path string) error {
			if err := os.Rename(path, path+"2"); err != nil {
				return err
			}
			return os.Symlink(path+"2", path)
		},
		"writable_file":   func(path string) error { return os.Chmod(path, 0o522) },
		"writable_folder": func(path string) error { return os.Chmod(filepath.Dir(path), 0o777) },
		"writable_store":  func(path string) error { return os.Chmod(filepath.Dir(filepath.Dir(path)), 0o777) },
	} {
		t.Run(name, func(t *testing.T) {
			h, dir := newHome(t), newFolder(t)
			b := stageFile(t, h, dir, "a_v1.0.0", program)
			if err := damage(b.Path); err != nil {
				t.Fatal(err)
			}
			if err := h.Verify(b); err == nil {
				t.Error("verified")
			}
			if _, err := h.Lookup("a", b.Ref()); err == nil {
				t.Error("found")
			}
			f := scanOne(t, dir, "a_v1.0.0")
			if _, err := h.Stage(context.Background(), f); (err == nil) != (name == "gone") {
				t.Errorf("staging again must repair only what is missing: %v", err)
			}
		})
	}
	h, dir := newHome(t), newFolder(t)
	b := stageFile(t, h, dir, "a_v1.0.0", program)
	if err := cutStaged(b.Path, 5); err != nil {
		t.Fatal(err)
	}
	var digestError *DigestError
	if err := h.Verify(b); !errors.As(err, &digestError) || digestError.Want != b.SHA256 {
		t.Fatalf("got %v", err)
	}
	contains(t, digestError.Error(), "remove the folder "+filepath.Dir(b.Path))
	if err := os.RemoveAll(filepath.Dir(b.Path)); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Stage(context.Background(), scanOne(t, dir, "a_v1.0.0")); err != nil {
		t.Errorf("the advice did not help: %v", err)
	}
}

func TestSidecar(t *testing.T) {
	good, bad := sumOf(program), sumOf("other")
	for _, test := range []struct{ name, content, failure string }{
		{"bare", good + "\n", ""},
		{"upper_case", strings.ToUpper(good), ""},
		{"sha256sum", good + "  a_v1.0.0\n", ""},
		{"binary_mark", good + " *a_v1.0.0\n", ""},
		{"in_a_folder", good + "  dist/a_v1.0.0\n", ""},
		{"bsd", "SHA256 (a_v1.0.0) = " + good + "\n", ""},
		{"openssl", "SHA256(a_v1.0.0)= " + good + "\n", ""},
		{"list", bad + "  b_v1.0.0\r\n" + good + "  a_v1.0.0\r\n", ""},
		{"wrong", bad + "\n", "download both again"},
		{"wrong_and_named", bad + "  a_v1.0.0\n", "download both again"},
		{"other_name", good + "  b_v1.0.0\n", "no sha256 of a_v1.0.0"},
		{"empty", "", "sha256sum a_v1.0.0 > a_v1.0.0.sha256"},
		{"md5", "d41d8cd98f00b204e9800998ecf8427e\n", "no sha256"},
		{"cut", good[:63], "no sha256"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, dir := newHome(t), newFolder(t)
			put(t, dir, "a_v1.0.0", program, 0o755)
			put(t, dir, "a_v1.0.0.sha256", test.content, 0o644)
			f := scanOne(t, dir, "a_v1.0.0")
			_, inspectErr := h.Inspect(context.Background(), f)
			_, stageErr := h.Stage(context.Background(), f)
			for _, err := range []error{inspectErr, stageErr} {
				if (err == nil) != (test.failure == "") {
					t.Errorf("got %v", err)
				} else if err != nil {
					contains(t, err.Error(), test.failure, "a_v1.0.0")
				}
			}
			if stageErr != nil && temporaries(t, filepath.Join(h.Dir(), "store")) != 0 {
				t.Error("a refused copy stays in the store")
			}
			if _, err := h.Lookup("a", Ref{f.Version, good}); (err == nil) != (test.failure == "") {
				t.Errorf("lookup: %v", err)
			}
		})
	}
}

func TestSidecarThatCannotBeTrustedRefuses(t *testing.T) {
	h, dir := newHome(t), newFolder(t)
	put(t, dir, "a_v1.0.0", program, 0o755)
	outside := put(t, t.TempDir(), "sums", sumOf(program), 0o644)
	if err := os.Symlink(outside, filepath.Join(dir, "a_v1.0.0.sha256")); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Stage(context.Background(), scanOne(t, dir, "a_v1.0.0")); err == nil {
		t.Error("staged")
	}
}

func TestStageNoticesChanges(t *testing.T) {
	h, dir := newHome(t), newFolder(t)
	path := put(t, dir, "a_v1.0.0", program, 0o755)
	f := scanOne(t, dir, "a_v1.0.0")

	t.Run("since_the_scan", func(t *testing.T) {
		put(t, dir, "a_v1.0.0", program+"#", 0o755)
		if _, err := h.Stage(context.Background(), f); !errors.Is(err, ErrChanged) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("while_copying", func(t *testing.T) {
		for _, change := range []func() error{
			func() error { return os.WriteFile(path, []byte("x"), 0o755) },
			func() error { return os.WriteFile(path, []byte(program+"# and more"), 0o755) },
		} {
			put(t, dir, "a_v1.0.0", program+"#", 0o755)
			f := scanOne(t, dir, "a_v1.0.0")
			setFault(t, func(step string) {
				if step == "stage.created" {
					if err := change(); err != nil {
						t.Error(err)
					}
				}
			})
			if _, err := h.Stage(context.Background(), f); !errors.Is(err, ErrChanged) {
				t.Errorf("got %v", err)
			}
		}
	})
	t.Run("became_unsafe", func(t *testing.T) {
		setFault(t, nil)
		put(t, dir, "a_v1.0.0", program, 0o755)
		f := scanOne(t, dir, "a_v1.0.0")
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Stage(context.Background(), f); err == nil {
			t.Error("staged")
		}
	})
	if _, err := h.Lookup("a", Ref{f.Version, sumOf(program)}); !errors.Is(err, ErrNotStaged) {
		t.Errorf("something was staged: %v", err)
	}
	if n := temporaries(t, filepath.Join(h.Dir(), "store")); n != 0 {
		t.Errorf("%d temporary files stay", n)
	}
}

// setFault sets the hook for one test; tests that use it do not run in parallel.
func setFault(t *testing.T, hook func(step string)) {
	faultPoint = hook
	t.Cleanup(func() { faultPoint = nil })
}

func TestStageRefusesWhatIsNotReady(t *testing.T) {
	h, dir := newHome(t), newFolder(t)
	put(t, dir, "a_v1.0.0", "text", 0o755)
	put(t, dir, "a_v1.0.0.sha256", program, 0o755)
	for _, name := range []string{"a_v1.0.0", "a_v1.0.0.sha256"} {
		if _, err := h.Stage(context.Background(), scanOne(t, dir, name)); err == nil {
			t.Errorf("%s was staged", name)
		}
	}
	if got := tree(t, h.Dir()); got != "" {
		t.Errorf("a refusal created: %s", got)
	}
}

func TestStageCancelled(t *testing.T) {
	h, dir := newHome(t), newFolder(t)
	put(t, dir, "a_v1.0.0", program, 0o755)
	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(reason)
	if _, err := h.Stage(ctx, scanOne(t, dir, "a_v1.0.0")); !errors.Is(err, reason) {
		t.Errorf("got %v", err)
	}
	if n := temporaries(t, filepath.Join(h.Dir(), "store")); n != 0 {
		t.Errorf("%d temporary files stay", n)
	}
}

// A dry run gives what the real run would and leaves no trace, on a home that
// does not exist and on one in use.
func TestInspectWritesNothing(t *testing.T) {
	h, dir := newHome(t), newFolder(t)
	put(t, dir, "a_v1.0.0", program, 0o755)
	put(t, dir, "w_v1.0.0.json", `{"command":"sh"}`, 0o644)
	for _, name := range []string{"a_v1.0.0", "w_v1.0.0.json"} {
		f := scanOne(t, dir, name)
		before := tree(t, filepath.Dir(h.Dir())) + tree(t, dir)
		dry, err := h.Inspect(context.Background(), f)
		if err != nil {
			t.Fatal(err)
		}
		if after := tree(t, filepath.Dir(h.Dir())) + tree(t, dir); after != before {
			t.Errorf("before %s\nafter %s", before, after)
		}
		real, err := h.Stage(context.Background(), f)
		if err != nil || !reflect.DeepEqual(dry, real) {
			t.Errorf("dry  %+v\nreal %+v, %v", dry, real, err)
		}
		before = tree(t, h.Dir())
		if again, err := h.Inspect(context.Background(), f); err != nil || !reflect.DeepEqual(again, real) || tree(t, h.Dir()) != before {
			t.Errorf("inspecting what is staged: %+v, %v", again, err)
		}
	}
}

func TestConcurrentStagers(t *testing.T) {
	h, dir := newHome(t), newFolder(t)
	put(t, dir, "a_v1.0.0", program+strings.Repeat("# filler\n", 100_000), 0o755)
	f := scanOne(t, dir, "a_v1.0.0")
	var wg sync.WaitGroup
	builds := make([]Build, 8)
	for i := range builds {
		// Ends with its Stage; joined below.
		wg.Go(func() {
			var err error
			if builds[i], err = h.Stage(context.Background(), f); err != nil {
				t.Error(err)
			}
			// Run at once: a copy still open for writing in a fork would fail.
			if output, err := exec.Command(builds[i].Path).Output(); err != nil || string(output) != "ok\n" {
				t.Errorf("running it: %q, %v", output, err)
			}
		})
	}
	wg.Wait()
	for _, b := range builds {
		if b != builds[0] {
			t.Errorf("different builds: %+v %+v", b, builds[0])
		}
	}
	if err := h.Verify(builds[0]); err != nil {
		t.Error(err)
	}
	if n := temporaries(t, filepath.Join(h.Dir(), "store")); n != 0 {
		t.Errorf("%d temporary files stay", n)
	}
}

// A child forked while a copy is open for writing would hold it open until its
// exec, and running the copy would fail with "text file busy".
func TestNothingIsForkedWhileACopyIsOpen(t *testing.T) {
	h, dir := newHome(t), newFolder(t)
	free := map[string]bool{}
	setFault(t, func(step string) {
		free[step] = syscall.ForkLock.TryLock()
		if free[step] {
			syscall.ForkLock.Unlock()
		}
	})
	stageFile(t, h, dir, "a_v1.0.0", program)
	if canFork, reached := free["stage.created"]; !reached || canFork {
		t.Error("a process could be forked while the copy was open for writing")
	}
	if !free["stage.copied"] || !free["stage.done"] {
		t.Errorf("forking is held up for longer than the copy is open: %v", free)
	}
}

// The symptom of the same: staging and starting different programs from many
// goroutines.
func TestNoTextFileBusy(t *testing.T) {
	h, dir := newHome(t), newFolder(t)
	filler := strings.Repeat("# filler\n", 20_000)
	const goroutines, rounds = 8, 10
	for i := range goroutines * rounds {
		put(t, dir, fmt.Sprintf("a_v1.0.%d", i), fmt.Sprintf("%s# %d\n%s", program, i, filler), 0o755)
	}
	l, err := Scan(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := l.Candidates("a")
	var wg sync.WaitGroup
	for g := range goroutines {
		// Ends after its rounds; joined below.
		wg.Go(func() {
			for _, f := range files[g*rounds : (g+1)*rounds] {
				b, err := h.Stage(context.Background(), f)
				if err != nil {
					t.Error(err)
					return
				}
				if output, err := exec.Command(b.Path).CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, output)
				}
			}
		})
	}
	wg.Wait()
}

// What a killed stager leaves goes at the next start or staging, but never the
// unfinished copy of somebody alive.
func TestLeftoversOfTheDeadAreSwept(t *testing.T) {
	for name, sweep := range map[string]func(h *Home, dir string) error{
		"sweep": func(h *Home, _ string) error { return h.Sweep() },
		"stage": func(h *Home, dir string) error {
			_, err := h.Stage(context.Background(), scanOne(t, dir, "a_v1.0.0"))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, dir := newHome(t), newFolder(t)
			stageFile(t, h, dir, "a_v1.0.0", program)
			store := filepath.Join(h.Dir(), "store")
			put(t, store, stagePrefix+"DEAD", "x", 0o600)
			unlock, err := lockStaging(context.Background(), store)
			if err != nil {
				t.Fatal(err)
			}
			alive := put(t, store, stagePrefix+"ALIVE", "x", 0o600)
			if err := sweep(h, dir); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(alive); err != nil {
				t.Errorf("an unfinished copy was removed: %v", err)
			}
			unlock()
			if err := sweep(h, dir); err != nil {
				t.Error(err)
			}
			if n := temporaries(t, store); n != 0 {
				t.Errorf("%d temporary files stay", n)
			}
		})
	}
	h := newHome(t)
	if err := h.Sweep(); err != nil || tree(t, h.Dir()) != "" {
		t.Errorf("sweeping nothing: %v, %s", err, tree(t, h.Dir()))
	}
}

func TestStagedListsWholeBuildsNewestFirst(t *testing.T) {
	h, dir := newHome(t), newFolder(t)
	if builds, err := h.Staged("a"); err != nil || len(builds) != 0 {
		t.Fatalf("%v, %v", builds, err)
	}
	oldest := stageFile(t, h, dir, "a_v1.2.0", program)
	newest := stageFile(t, h, dir, "a_v1.10.0", program+"#")
	damaged := stageFile(t, h, dir, "a_v2.0.0", program+"##")
	stageFile(t, h, dir, "ab_v9.0.0", program+"###")
	if err := cutStaged(damaged.Path, 1); err != nil {
		t.Fatal(err)
	}
	builds, err := h.Staged("a")
	if err != nil || !reflect.DeepEqual(builds, []Build{newest, oldest}) {
		t.Errorf("%+v, %v", builds, err)
	}
}

func TestPruneKeepsWhatStatesName(t *testing.T) {
	h, dir := newHome(t), newFolder(t)
	other := newFolder(t)
	builds := map[string]Build{}
	for i, name := range []string{"active", "previous", "pinned", "elsewhere", "unused", "fresh"} {
		builds[name] = stageFile(t, h, dir, fmt.Sprintf("a_v1.0.%d", i), program+name)
		if name != "fresh" {
			past := time.Now().Add(-48 * time.Hour)
			if err := os.Chtimes(filepath.Dir(builds[name].Path), past, past); err != nil {
				t.Fatal(err)
			}
		}
	}
	update := func(folder string, fn func(*PluginState)) {
		s, err := h.State(folder)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Update(context.Background(), "a", func(p *PluginState) error { fn(p); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	update(dir, func(p *PluginState) {
		p.Active, p.Previous = builds["active"].Ref(), builds["previous"].Ref()
		p.Pin = &Pin{builds["pinned"].Version, builds["pinned"].SHA256}
	})
	update(other, func(p *PluginState) { p.Active = builds["elsewhere"].Ref() })

	removed, err := h.Prune(context.Background(), 24*time.Hour)
	if err != nil || len(removed) != 1 || removed[0] != builds["unused"].SHA256 {
		t.Errorf("removed %v, %v", removed, err)
	}
	for name, b := range builds {
		if _, err := h.Lookup("a", b.Ref()); (err != nil) != (name == "unused") {
			t.Errorf("%s: %v", name, err)
		}
	}

	s, err := h.State(other)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(s.file("a"), 3); err != nil {
		t.Fatal(err)
	}
	before := tree(t, filepath.Join(h.Dir(), "store"))
	if _, err := h.Prune(context.Background(), 0); err == nil || tree(t, filepath.Join(h.Dir(), "store")) != before {
		t.Errorf("a damaged state must end it before anything is removed: %v", err)
	}
}

func TestLookupRefusesOddReferences(t *testing.T) {
	h := newHome(t)
	for _, sum := range []string{"", "..", "../../etc", strings.Repeat("z", 64)} {
		if _, err := h.Lookup("a", Ref{version(t, "1.0.0"), sum}); err == nil {
			t.Errorf("%q was looked up", sum)
		}
	}
	if _, err := h.Lookup("a", Ref{version(t, "1.0.0"), sumOf("x")}); !errors.Is(err, ErrNotStaged) {
		t.Errorf("got %v", err)
	}
}

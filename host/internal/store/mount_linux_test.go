package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A store on a file system that runs no programs: staging fails and says so before anything is written, and so does a
// look that writes nothing. A manifest is no program.
func TestStoreThatRunsNoPrograms(t *testing.T) {
	mount := t.TempDir()
	if err := unix.Mount("tmpfs", mount, "tmpfs", unix.MS_NOEXEC, "size=1m,mode=700"); errors.Is(err, fs.ErrPermission) {
		t.Skipf("this user may not mount a noexec file system: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(mount, unix.MNT_DETACH) }()
	h, err := OpenHome(filepath.Join(mount, "home"))
	if err != nil {
		t.Fatal(err)
	}
	dir := newFolder(t)
	put(t, dir, "a_v1.0.0", program, 0o755)
	put(t, dir, "m_v1.0.0.json", `{"command":"sh"}`, 0o644)
	for name, stage := range map[string]func(context.Context, File) (Build, error){"stage": h.Stage, "inspect": h.Inspect} {
		_, err := stage(t.Context(), scanOne(t, dir, "a_v1.0.0"))
		if err == nil {
			t.Fatalf("%s succeeds", name)
		}
		contains(t, err.Error(), mount+" is on a file system mounted noexec", "--home or SOX_HOME")
	}
	if entries, err := os.ReadDir(mount); err != nil || len(entries) > 0 {
		t.Errorf("written: %v, %v", entries, err)
	}
	if b, err := h.Stage(t.Context(), scanOne(t, dir, "m_v1.0.0.json")); err != nil || h.Verify(b) != nil {
		t.Errorf("a manifest: %+v, %v", b, err)
	}
}

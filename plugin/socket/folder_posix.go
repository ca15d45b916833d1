//go:build linux || darwin

package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxLinks is how many symbolic links one path may lead through; the Linux kernel has the same limit.
const maxLinks = 40

func checkFolder(dir string) error {
	return inspectFolder(dir, FallbackRoot(os.Geteuid()), false)
}

func ensureFolder(dir string) error {
	return inspectFolder(dir, FallbackRoot(os.Geteuid()), true)
}

// inspectFolder walks from the root to dir. Going down by name is free of races: each entry is looked at only after the folder that holds it was
// found to be one in which nobody but root and this user can replace an entry of root or this user. The last component is judged through an open
// descriptor, because it may live in a sticky folder where others can create it first. fallback is the folder that needs mode 0700 exactly.
func inspectFolder(dir, fallback string, create bool) error {
	asked, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("check folder %q: %w", dir, err)
	}
	w := &folderWalk{asked: asked, fallback: fallback, uid: os.Geteuid(), create: create}
	if asked == "/" {
		return w.folder("/")
	}
	if _, err := w.ancestor("/"); err != nil {
		return err
	}
	at, pending := "/", components(asked)
	for len(pending) > 1 {
		name := pending[0]
		pending = pending[1:]
		if name == ".." { // only from the target of a link; at has no links in it, so its parent is its lexical parent
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		target, err := w.ancestor(next)
		switch {
		case err != nil:
			return err
		case target == "":
			at = next
		default:
			if filepath.IsAbs(target) {
				at = "/"
			}
			pending = append(components(target), pending...)
		}
	}
	return w.folder(filepath.Join(at, pending[0]))
}

func components(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

type folderWalk struct {
	asked    string
	fallback string
	uid      int
	create   bool
	links    int // followed so far
}

// ancestor judges one folder above the asked one. For a link that may be followed it returns the target.
func (w *folderWalk) ancestor(path string) (target string, err error) {
	info, err := os.Lstat(path)
	if w.create && errors.Is(err, fs.ErrNotExist) {
		if err := mkdirPrivate(path); err != nil {
			return "", err
		}
		info, err = os.Lstat(path)
	}
	if err != nil {
		return "", err
	}
	owner := ownerOf(info)
	switch {
	case owner != w.uid && !asGoodAsRoot(owner):
		return "", w.refuse(ReasonForeign, path, info)
	case info.Mode()&fs.ModeSymlink != 0:
		if w.links++; w.links > maxLinks {
			return "", &fs.PathError{Op: "check folder", Path: w.asked, Err: syscall.ELOOP}
		}
		return os.Readlink(path)
	case !info.IsDir():
		return "", w.refuse(ReasonForeign, path, info)
	case info.Mode().Perm()&0o022 == 0, info.Mode()&fs.ModeSticky != 0:
		return "", nil
	case owner == w.uid:
		return "", w.refuse(ReasonOwnWritable, path, info)
	}
	return "", w.refuse(ReasonForeign, path, info)
}

// folder judges the asked folder itself, which the links above it put at path.
func (w *folderWalk) folder(path string) error {
	if w.create {
		if err := mkdirPrivate(path); err != nil {
			return err
		}
	}
	f, err := openFolder(path)
	if err != nil {
		// What cannot be opened is named from its entry. A dangling or foreign link, a file and a stranger's 0700 folder all end here.
		info, statErr := os.Lstat(path)
		if statErr != nil {
			return statErr
		}
		if info.Mode()&fs.ModeSymlink != 0 || !info.IsDir() || ownerOf(info) != w.uid {
			return w.refuse(ReasonForeign, w.asked, info)
		}
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	switch perm := info.Mode().Perm(); {
	case ownerOf(info) != w.uid:
		return w.refuse(ReasonForeign, w.asked, info)
	case w.asked == w.fallback:
		if perm != 0o700 {
			return w.refuse(ReasonFallbackMode, w.asked, info)
		}
	case perm&0o022 != 0:
		return w.refuse(ReasonOwnWritable, w.asked, info)
	}
	return nil
}

// refuse builds the error; dir is w.asked or a folder above it.
func (w *folderWalk) refuse(reason Reason, dir string, info fs.FileInfo) error {
	return &FolderError{
		Reason:      reason,
		Asked:       w.asked,
		Dir:         dir,
		ExpectedUID: w.uid,
		ActualUID:   ownerOf(info),
		Mode:        info.Mode(),
		IsSymlink:   info.Mode()&fs.ModeSymlink != 0,
	}
}

// mkdirPrivate makes one folder; one that exists is left to the check that follows.
func mkdirPrivate(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func openFolder(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
}

func ownerOf(info fs.FileInfo) int {
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

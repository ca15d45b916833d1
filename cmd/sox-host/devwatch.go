package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// saveQuiet is how long a folder must be quiet before its changes count as one save: editors write, rename and
	// chmod within a few milliseconds. What comes later, such as a tool that formats, is built once more; waiting for it
	// would cost every save as much as the swap does.
	saveQuiet = 40 * time.Millisecond
	// saveLatest bounds the wait for quiet in a folder that never is: 2 s.
	saveLatest = 2 * time.Second
	// echoLimit is how many builds in a row may be followed by changes of the same files, made while it ran, before
	// these count as its output: twice may be a person who saves often.
	echoLimit = 3
	// headBytes of a file tell a program from a text: the magic numbers are in the first 4, and no program of any kind
	// is without a zero byte in its first 512.
	headBytes = 512
)

// sourceWatch waits for saves below a folder. It is used by one goroutine, which closes it.
type sourceWatch struct {
	root   string
	plugin string   // its name
	ignore []string // patterns, and absolute folders
	w      *fsnotify.Watcher

	programs map[string]bool // files that are, or were when they were last there, no sources but made of them

	echo    []string        // files that changed during the last build
	times   int             // how often in a row
	outputs map[string]bool // files that every build changes
}

// span is the time in which a build ran.
type span struct{ from, to time.Time }

// covers reports whether a file was last changed in it.
func (b span) covers(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.ModTime().Before(b.from) && !info.ModTime().After(b.to)
}

func watchSources(root, plugin string, ignore []string) (*sourceWatch, error) {
	for _, pattern := range ignore {
		if _, err := filepath.Match(pattern, ""); err != nil {
			return nil, usagef("--ignore %q: %w", pattern, err)
		}
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", root, err)
	}
	s := &sourceWatch{root: root, plugin: plugin, ignore: ignore, w: w, programs: map[string]bool{}, outputs: map[string]bool{}}
	if err := s.add(root); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *sourceWatch) close() { _ = s.w.Close() }

// add watches a folder and everything below it. Folders that vanish meanwhile are no error.
func (s *sourceWatch) add(root string) error {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case !entry.IsDir():
			s.isProgram(path) // so that it is known as one when it is removed
			return nil
		case path != s.root && s.ignored(path):
			return fs.SkipDir
		}
		if err := s.w.Add(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("watch %s: %w", root, err)
	}
	return nil
}

// ignored says whether changes of a path are no saves: hidden files and folders, backups of editors, folders of
// dependencies and caches, and what the flags name.
func (s *sourceWatch) ignored(path string) bool {
	relative, err := filepath.Rel(s.root, path)
	if err != nil {
		return true
	}
	for part := range strings.SplitSeq(filepath.ToSlash(relative), "/") {
		switch {
		case strings.HasPrefix(part, ".") && part != ".",
			strings.HasSuffix(part, "~"), strings.HasPrefix(part, "#"),
			strings.HasSuffix(part, ".swp"), strings.HasSuffix(part, ".swx"), part == "4913", // vim
			part == "node_modules", part == "__pycache__":
			return true
		}
		for _, pattern := range s.ignore {
			if match, err := filepath.Match(pattern, part); err == nil && match {
				return true
			}
		}
	}
	return slices.ContainsFunc(s.ignore, func(pattern string) bool {
		match, err := filepath.Match(pattern, relative)
		return err == nil && match || filepath.IsAbs(pattern) && (path == pattern || strings.HasPrefix(path, pattern+string(filepath.Separator)))
	})
}

// isProgram says whether a file is no source but made of them: a compiled program, or anything with the plugin's name
// that is no text, which may be one that is just being written. What is gone is what it was.
func (s *sourceWatch) isProgram(path string) bool {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s.programs[path]
	}
	bare, exe := strings.CutSuffix(filepath.Base(path), ".exe")
	named := bare == s.plugin
	s.programs[path] = err == nil && info.Mode().IsRegular() && (named || exe || info.Mode()&0o111 != 0) && hasProgram(path, named)
	return s.programs[path]
}

// hasProgram looks into a file that could be one. Unless it is named for the plugin it has to begin as programs of the
// three systems do: on some file systems every image is executable. One that cannot be read is none.
func hasProgram(path string, named bool) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, headBytes))
	switch {
	case err != nil:
		return false
	case len(head) == 0:
		return true // nothing is written yet
	case bytes.IndexByte(head, 0) < 0:
		return false // a text
	case named:
		return true
	}
	return slices.ContainsFunc([]string{
		"\x7fELF",
		"\xfe\xed\xfa\xce", "\xfe\xed\xfa\xcf", "\xce\xfa\xed\xfe", "\xcf\xfa\xed\xfe", "\xca\xfe\xba\xbe", // Mach-O, and several in one
		"MZ", // PE
	}, func(magic string) bool { return bytes.HasPrefix(head, []byte(magic)) })
}

// wait returns after the next save, or with ctx's error. Changes made while the build ran count too: a save must not
// be lost because it came early. But when it is always the same files that change then, they are the build's output,
// and what a build does to them is no save; log is told so.
func (s *sourceWatch) wait(ctx context.Context, build span, log io.Writer) error {
	for {
		changed, err := s.collect(ctx)
		if err != nil || len(changed) == 0 { // nothing: more than could be counted
			return err
		}
		changed = slices.DeleteFunc(changed, func(path string) bool { return s.outputs[path] && build.covers(path) })
		if len(changed) == 0 {
			continue
		}
		if slices.ContainsFunc(changed, func(path string) bool { return !build.covers(path) }) {
			s.echo, s.times = nil, 0
			return nil
		}
		if !slices.Equal(changed, s.echo) {
			s.echo, s.times = changed, 0
		}
		if s.times++; s.times < echoLimit {
			return nil
		}
		for _, path := range changed {
			s.outputs[path] = true
		}
		fmt.Fprintf(log, "every build changes %s: that is not taken for a save any more\n", oneLine(strings.Join(changed, ", ")))
	}
}

// collect waits for the first change, and then until it is quiet. It returns the paths of the sources among what
// changed, sorted; none when there was more than could be counted.
func (s *sourceWatch) collect(ctx context.Context) ([]string, error) {
	changed := map[string]bool{}
	quiet, latest := time.NewTimer(saveQuiet), time.NewTimer(saveLatest)
	quiet.Stop()
	latest.Stop()
	defer quiet.Stop()
	defer latest.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case err, ok := <-s.w.Errors:
			if !ok {
				return nil, errors.New("the watch has ended")
			}
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return nil, fmt.Errorf("watch %s: %w", s.root, err)
			}
			return nil, nil // more than could be counted
		case e, ok := <-s.w.Events:
			if !ok {
				return nil, errors.New("the watch has ended")
			}
			if e.Op == fsnotify.Chmod || s.ignored(e.Name) {
				continue
			}
			if info, err := os.Lstat(e.Name); err == nil && info.IsDir() {
				if !e.Has(fsnotify.Create) {
					continue
				}
				if err := s.add(e.Name); err != nil {
					return nil, err
				}
			}
			if len(changed) == 0 {
				latest.Reset(saveLatest)
			}
			changed[e.Name] = true
			quiet.Reset(saveQuiet)
			continue
		case <-quiet.C:
		case <-latest.C:
		}
		// Judged only now, when what was being written is written.
		maps.DeleteFunc(changed, func(path string, _ bool) bool { return s.isProgram(path) })
		if len(changed) > 0 {
			return slices.Sorted(maps.Keys(changed)), nil
		}
	}
}

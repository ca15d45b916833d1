package host

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/sox-host/sox-host/host/internal/store"
)

// followEvery is how often a followed log is looked at: 200 ms, which a reader takes for at once.
const followEvery = 200 * time.Millisecond

// maxLogLine bounds one line of a log that is read: hosts write at most some KiB each. Of a longer one, as a shared process
// may write it, the end is passed on.
const maxLogLine = 1 << 20

// LogOptions says which lines of a plugin's log are wanted.
type LogOptions struct {
	Home       string // absolute
	PluginsDir string // absolute
	Plugin     string
	Lines      int  // the last n; 0 = none, negative = all
	Follow     bool // go on with what is written from now on, until ctx ends
}

// Log calls line with lines of a plugin's log, oldest first, without their ends; those of the rotated file come
// before those of the present one. While it follows, a rotation loses nothing. Nothing logged yet is no error; a
// plugin that nobody knows is ErrUnknownPlugin. The end of ctx ends following without an error; an error of line
// ends it with that error.
func Log(ctx context.Context, o LogOptions, line func(string) error) error {
	home, err := store.OpenHome(o.Home)
	if err != nil {
		return err
	}
	if err := checkName(o.Plugin); err != nil {
		return err
	}
	t := &logTail{path: logPath(home, o.Plugin)}
	defer t.close()
	if err := t.open(); err != nil {
		return err
	}
	if t.file == nil {
		_, err := openPlugin(o.Home, o.PluginsDir, o.Plugin)
		var folder *store.FolderError
		if errors.Is(err, ErrUnknownPlugin) || errors.As(err, &folder) {
			return err
		}
	}
	if err := t.last(o.Lines, line); err != nil || !o.Follow {
		return err
	}
	ticker := time.NewTicker(followEvery)
	defer ticker.Stop()
	for {
		if err := t.more(line); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// LastFailure says why the last start of a plugin failed, or its last session was not opened, and when; "" if neither
// did, if the plugin was mended since, or if the folder cannot be read. It looks at the disk alone and changes nothing.
func LastFailure(home, pluginsDir, name string) string {
	inventory, err := List(home, pluginsDir)
	if err != nil {
		return ""
	}
	for _, p := range inventory.Plugins {
		if p.Plugin == name {
			return p.failed
		}
	}
	return ""
}

// logTail reads a log that others write and rotate.
type logTail struct {
	path string
	file *os.File // nil while there is none
	rest []byte   // of a line whose end is not written yet
}

func (t *logTail) close() {
	if t.file != nil {
		_ = t.file.Close()
	}
}

// open opens the present file, if there is one.
func (t *logTail) open() error {
	file, err := os.Open(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	t.file = file
	return err
}

// last passes on the last n lines, and leaves the file at its end.
func (t *logTail) last(n int, line func(string) error) error {
	var kept []string
	keep := func(s string) error {
		switch {
		case n < 0:
			return line(s)
		case n > 0:
			kept = append(kept, s)
			if len(kept) > n {
				kept = kept[1:] // append moves the rest when it needs room
			}
		}
		return nil
	}
	if file, err := os.Open(t.path + ".1"); err == nil {
		old := logTail{file: file}
		if err = old.read(keep); err == nil && len(old.rest) > 0 {
			err = keep(string(old.rest)) // its end will never be written
		}
		old.close()
		if err != nil {
			return err
		}
	}
	if t.file != nil {
		if err := t.more(keep); err != nil {
			return err
		}
	}
	for _, s := range kept {
		if err := line(s); err != nil {
			return err
		}
	}
	return nil
}

// more passes on what was written since, across a rotation.
func (t *logTail) more(line func(string) error) error {
	for {
		if t.file == nil {
			if err := t.open(); err != nil || t.file == nil {
				return err
			}
		}
		// Asked before reading: what was written before the file got its other name is then read below.
		rotated, err := t.rotated()
		if err != nil {
			return err
		}
		if err := t.read(line); err != nil || !rotated {
			return err
		}
		_ = t.file.Close()
		t.file = nil
	}
}

// rotated says whether the path leads to another file. One that was cut short is read from its start.
func (t *logTail) rotated() (bool, error) {
	mine, err := t.file.Stat()
	if err != nil {
		return false, err
	}
	at, err := t.file.Seek(0, io.SeekCurrent)
	if err == nil && mine.Size() < at {
		t.rest = nil
		_, err = t.file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return false, err
	}
	present, err := os.Stat(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // between two names, or removed: the next look tells
	}
	return err == nil && !os.SameFile(mine, present), err
}

func (t *logTail) read(line func(string) error) error {
	buffer := make([]byte, 64<<10)
	for {
		n, err := t.file.Read(buffer)
		t.rest = append(t.rest, buffer[:n]...)
		for {
			whole, rest, ok := bytes.Cut(t.rest, []byte("\n"))
			if !ok {
				break
			}
			t.rest = rest
			if err := line(string(whole)); err != nil {
				return err
			}
		}
		if len(t.rest) > maxLogLine {
			t.rest = nil
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// LogLine is one line of a plugin's log, taken apart. A line that is not a host's has only Text.
type LogLine struct {
	Time       string `json:"time,omitempty"` // UTC, RFC 3339
	Version    string `json:"version,omitempty"`
	Generation string `json:"generation,omitempty"`
	Stream     string `json:"stream,omitempty"` // stdout or stderr
	Text       string `json:"text"`
}

// ParseLogLine takes a line apart that a host wrote: TIME VERSION/GENERATION STREAM: TEXT.
func ParseLogLine(s string) LogLine {
	head, text, ok := strings.Cut(s, ": ")
	fields := strings.Fields(head)
	if !ok || len(fields) != 3 {
		return LogLine{Text: s}
	}
	version, generation, ok := strings.Cut(fields[1], "/")
	if _, err := time.Parse(time.RFC3339, fields[0]); err != nil || !ok {
		return LogLine{Text: s}
	}
	return LogLine{Time: fields[0], Version: version, Generation: generation, Stream: fields[2], Text: text}
}

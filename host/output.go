package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/host/internal/store"
)

const (
	// maxLogBytes is the size at which a plugin's log becomes NAME.log.1, replacing the one before: 4 MiB each.
	maxLogBytes = 4 << 20
	// logCheck is how often a log is looked at for another host having rotated it: every second, so that at most
	// a second's lines follow the old name.
	logCheck = time.Second
	// logRetry is how long a log that could not be written is left alone: 30 s. A full disk is usually seen to.
	logRetry = 30 * time.Second
)

// pluginOutput writes what plugins print into logs/NAME.log and to the host's own log. Plugin bytes are data:
// what could end or forge a line is escaped. Safe for concurrent use.
type pluginOutput struct {
	home  *store.Home
	log   hclog.Logger
	quiet bool // no files: for a dry run, which writes nothing. Set before use
	check time.Duration

	mu    sync.Mutex
	files map[string]*logFile
	junk  map[string]junk // by plugin
}

// junk is what a wrapped server has printed on stdout that is no message. Others may print there: it is not their wire.
type junk struct {
	lines int
	last  string // sanitised
}

// maxJunkShown bounds what status repeats of such a line: 80 bytes.
const maxJunkShown = 80

type logFile struct {
	file    *os.File // nil after a failure, which is reported once
	size    int64    // at the last check, and what was written since
	checked time.Time
}

// due says whether the file is to be looked at again before something is written.
func (f *logFile) due(check time.Duration) bool {
	if f.file == nil {
		return time.Since(f.checked) >= logRetry
	}
	return f.size > maxLogBytes || time.Since(f.checked) >= check
}

func newPluginOutput(home *store.Home, log hclog.Logger) *pluginOutput {
	return &pluginOutput{home: home, log: log, check: logCheck, files: make(map[string]*logFile), junk: make(map[string]junk)}
}

// lines returns the receiver of one generation's output.
func (o *pluginOutput) lines(plugin, version string, generation uint64) func(process.Line) {
	log := o.log.Named("plugin").With("plugin", plugin, "version", version, "generation", generation)
	return func(line process.Line) {
		text := process.Sanitize(line.Text)
		if line.Cut > 0 {
			text += fmt.Sprintf(" [%d bytes cut]", line.Cut)
		}
		o.write(plugin, fmt.Sprintf("%s %s/%d %s: %s\n", time.Now().UTC().Format("2006-01-02T15:04:05.000Z"), version, generation, line.Stream, text))
		level := hclog.Info
		if parsed, ok := process.ParseLine(line.Text); ok {
			level = parsed.Level
		}
		log.Log(level, text)
	}
}

// wrapped is lines for a server that speaks on its stdout: what comes from there is counted as junk.
func (o *pluginOutput) wrapped(plugin, version string, generation uint64) func(process.Line) {
	pass := o.lines(plugin, version, generation)
	return func(line process.Line) {
		if line.Stream == process.Stdout {
			o.mu.Lock()
			j := o.junk[plugin]
			if j.lines += max(line.Dropped, 1); line.Dropped == 0 {
				text := process.Sanitize(line.Text)
				j.last = strings.ToValidUTF8(text[:min(len(text), maxJunkShown)], "")
			}
			o.junk[plugin] = j
			o.mu.Unlock()
		}
		pass(line)
	}
}

// problems says for status what a plugin printed that it should not have.
func (o *pluginOutput) problems(plugin string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	j := o.junk[plugin]
	if j.lines == 0 {
		return nil
	}
	return []string{fmt.Sprintf("lines on stdout that are no messages: %d, the last %q; sox-host logs %s shows them", j.lines, j.last, plugin)}
}

// write appends to the plugin's log and rotates it.
func (o *pluginOutput) write(plugin, line string) {
	if o.quiet {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.files[plugin]
	if f == nil || f.due(o.check) {
		f = o.open(plugin, f)
		o.files[plugin] = f
	}
	if f.file == nil {
		return
	}
	n, err := f.file.WriteString(line)
	f.size += int64(n)
	if err != nil {
		o.log.Error("plugin log not written", "plugin", plugin, "error", err)
		_ = f.file.Close()
		f.file, f.checked = nil, time.Now()
	}
}

// open returns the plugin's log for the next line; old is the one so far, or nil. All hosts of a home write to one
// file. The one that finds it full renames it, and the others, which hold what is now the old one, find that out here.
func (o *pluginOutput) open(plugin string, old *logFile) *logFile {
	dir, err := o.home.LogDir()
	path := filepath.Join(dir, plugin+".log")
	failing := old != nil && old.file == nil
	if err == nil && old != nil && !failing {
		if old.present(path) {
			if old.size <= maxLogBytes {
				return old
			}
			err = os.Rename(path, path+".1")
		}
		_ = old.file.Close()
	}
	var file *os.File
	if err == nil {
		file, err = os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	}
	if err != nil {
		if !failing {
			o.log.Error("plugin log not opened", "plugin", plugin, "error", err)
		}
		return &logFile{checked: time.Now()}
	}
	f := &logFile{file: file}
	f.present(path)
	return f
}

// present says whether path still leads to the file, and takes note of its size, which others change too.
func (f *logFile) present(path string) bool {
	f.checked = time.Now()
	mine, err := f.file.Stat()
	if err != nil {
		return false
	}
	f.size = mine.Size()
	there, err := os.Stat(path)
	return err == nil && os.SameFile(mine, there)
}

func (o *pluginOutput) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range o.files {
		if f.file != nil {
			_ = f.file.Close()
		}
	}
	clear(o.files)
}

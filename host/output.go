package host

import (
	"fmt"
	"os"
	"path/filepath"
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
}

type logFile struct {
	file    *os.File // nil after a failure, which is reported once
	size    int64    // at the last check, and what was written since
	checked time.Time
}

func newPluginOutput(home *store.Home, log hclog.Logger) *pluginOutput {
	return &pluginOutput{home: home, log: log, check: logCheck, files: make(map[string]*logFile)}
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

// write appends to the plugin's log and rotates it.
func (o *pluginOutput) write(plugin, line string) {
	if o.quiet {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.files[plugin]
	if f == nil || f.file != nil && (f.size > maxLogBytes || time.Since(f.checked) >= o.check) {
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
		f.file = nil
	}
}

// open returns the plugin's log for the next line; old is the one so far, or nil. All hosts of a home write to one
// file. The one that finds it full renames it, and the others, which hold what is now the old one, find that out here.
func (o *pluginOutput) open(plugin string, old *logFile) *logFile {
	dir, err := o.home.LogDir()
	path := filepath.Join(dir, plugin+".log")
	if err == nil && old != nil {
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
		o.log.Error("plugin log not opened", "plugin", plugin, "error", err)
		return &logFile{}
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

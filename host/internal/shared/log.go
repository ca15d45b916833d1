package shared

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/sox-host/sox-host/host/internal/process"
)

// Log is the file that shared processes of one plugin print to. They hold it open, and no host reads what they print:
// so it is kept within its bound from outside, by any host that is connected, which copies its end to PATH.1 and cuts
// it. A line that is written at just that moment is lost. While no host is connected nobody cuts it. The zero value
// stands for no log.
type Log struct {
	Path     string
	MaxBytes int64
}

// maxTailBytes of a log are read for a message: 16 KiB, the last words of a process and not its history.
const maxTailBytes = 16 << 10

// open returns the file, for a process to append to, and its size.
func (l Log) open() (*os.File, int64, error) {
	l.Trim()
	f, err := os.OpenFile(l.Path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("open the plugin's log: %w", err)
	}
	return f, l.size(), nil
}

// size is 0 if there is none.
func (l Log) size() int64 {
	info, err := os.Stat(l.Path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// Tail returns the lines that were written since the log had a size, the last ones if there are many, made harmless.
func (l Log) Tail(from int64) []string {
	f, err := os.Open(l.Path)
	if err != nil {
		return nil
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil
	}
	if size < from { // it was cut meanwhile
		from = 0
	}
	cut := size-from > maxTailBytes
	text, err := io.ReadAll(io.NewSectionReader(f, max(from, size-maxTailBytes), maxTailBytes))
	if err != nil {
		return nil
	}
	if _, rest, ok := bytes.Cut(text, []byte("\n")); ok && cut {
		text = rest
	}
	var lines []string
	for line := range bytes.Lines(text) {
		lines = append(lines, process.Sanitize(bytes.TrimRight(line, "\r\n")))
	}
	return lines
}

// Trim keeps the log and its predecessor within their bound. What fails is left for the next time: a log is no reason
// to disturb anything.
func (l Log) Trim() {
	if l.Path == "" {
		return
	}
	if l.size() > l.MaxBytes {
		_ = l.cut()
	}
	// A host that rotates the log by another name leaves processes writing there.
	if old := (Log{Path: l.Path + ".1"}); old.size() > 2*l.MaxBytes {
		_ = os.Truncate(old.Path, 0)
	}
}

// cut moves the end of the log to its predecessor. One host at a time.
func (l Log) cut() error {
	f, err := os.OpenFile(l.Path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close() // which unlocks it
	if !tryLockFile(f) {
		return nil // another host does
	}
	info, err := f.Stat()
	if err != nil || info.Size() <= l.MaxBytes {
		return err
	}
	part := l.Path + ".part"
	old, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(old, io.NewSectionReader(f, info.Size()-l.MaxBytes, l.MaxBytes))
	if err = errors.Join(err, old.Close()); err == nil {
		err = os.Rename(part, l.Path+".1")
	}
	if err != nil {
		if failed := os.Remove(part); failed != nil && !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	// Cut all the same: a full disk is the likely reason.
	return errors.Join(err, f.Truncate(0))
}

package process

import (
	"errors"
	"fmt"
)

// ErrClosed is returned by Start after Close.
var ErrClosed = errors.New("the spawner is closed")

// StartKind is why a program could not be started. The kernel has three error
// numbers for the first nine; looking at the file tells them apart.
type StartKind string

// The kinds. Their text is part of the error message.
const (
	KindMissing       StartKind = "no such file"
	KindDirectory     StartKind = "is a folder"
	KindNotExecutable StartKind = "not executable"
	KindNoexec        StartKind = "on a file system mounted noexec"
	KindEmpty         StartKind = "empty file"
	KindTruncated     StartKind = "truncated"
	KindWrongArch     StartKind = "wrong architecture"
	KindInterpreter   StartKind = "missing interpreter"
	KindFormat        StartKind = "not a program"
	KindBusy          StartKind = "still open for writing"
	KindDir           StartKind = "working folder unusable"
	KindSpec          StartKind = "invalid launch"
	KindLimit         StartKind = "out of processes, descriptors or memory"
	KindGuard         StartKind = "guard failed"
	KindCancelled     StartKind = "cancelled"
	KindUnsupported   StartKind = "not supported on this system"
	KindOther         StartKind = "failed"
)

// StartError says which program could not be started and why.
type StartError struct {
	Plugin string
	Path   string
	Kind   StartKind
	// Detail is what to know beyond the kind: which architecture, which
	// interpreter, which command would mend it. May be empty.
	Detail string
	// Err is the cause; context errors and errno values can be found in it.
	Err error
}

// Error returns one line: plugin, path, kind and detail, or kind and cause
// where there is no detail.
func (e *StartError) Error() string {
	text := fmt.Sprintf("start %q: %s: %s", e.Plugin, e.Path, e.Kind)
	if e.Plugin == "" {
		text = fmt.Sprintf("start %s: %s", e.Path, e.Kind)
	}
	switch {
	case e.Detail != "":
		return text + ": " + e.Detail
	case e.Err != nil:
		return text + ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

package process

import (
	"fmt"
	"time"
)

// Exit is how a process ended.
type Exit struct {
	// Code is the exit code; it means nothing if Signal is set.
	Code int
	// Signal is the signal that ended it, as "SIGKILL"; empty if it exited.
	Signal string
	// Unknown says that the process was no child of this host: all that is
	// known is that its connection has ended. Code and Signal mean nothing.
	Unknown bool
	// Reason is what the status alone does not say, for instance that the
	// guard was killed and took the plugin along. Mostly empty.
	Reason string
	// At is when the host learned of it.
	At time.Time
	// Ran is how long the process had run.
	Ran time.Duration
}

// String returns "exited with code 3", "killed by SIGKILL" or "ended its
// connection", followed by the reason in parentheses if there is one.
func (e Exit) String() string {
	var text string
	switch {
	case e.At.IsZero():
		return "still running"
	case e.Unknown:
		text = "ended its connection"
	case e.Signal != "":
		text = "killed by " + e.Signal
	default:
		text = fmt.Sprintf("exited with code %d", e.Code)
	}
	if e.Reason != "" {
		text += " (" + e.Reason + ")"
	}
	return text
}

// Clean reports whether the process ended by itself with code 0.
func (e Exit) Clean() bool { return !e.At.IsZero() && !e.Unknown && e.Signal == "" && e.Code == 0 }

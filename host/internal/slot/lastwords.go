package slot

import (
	"cmp"
	"errors"
	"strings"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/plugin/rpc"
)

// maxWhy bounds why a plugin cannot be used, as its clients are told: 800 bytes, what a process said and what happened.
const maxWhy = 2 * process.MaxSaid

// said is what a message has of the process's output, behind why it ended. Only after dead is closed.
func (g *generation) said() string {
	if g.unlogged {
		return process.Said(g.tail, "")
	}
	return process.Said(g.tail, g.slot.name)
}

// lastWordsError is why a generation could not be used, with what its process printed.
type lastWordsError struct {
	err  error
	said string
	tail []string
}

// lastWords adds to why a generation could not be used what its process printed. Only after dead is closed.
func (g *generation) lastWords(err error) error { return &lastWordsError{err, g.said(), g.tail} }

func (e *lastWordsError) Error() string { return e.err.Error() + e.said }
func (e *lastWordsError) Unwrap() error { return e.err }

// mayHaveToBeAlone reports that a candidate may have failed because another version ran beside it: it speaks of what
// somebody else holds, or it ended or hung and does not say why.
func (s *Slot) mayHaveToBeAlone(err error) bool {
	if process.SaysInUse([]string{err.Error()}) {
		return true
	}
	var words *lastWordsError
	if !errors.As(err, &words) {
		return errors.Is(err, errTimeout)
	}
	var violation *rpc.ViolationError
	return process.SaysInUse(words.tail) || !errors.As(err, &violation) && !process.SaysWhy(words.tail, s.name)
}

// Unavailable says in one line why the plugin cannot say what it serves: it did not start, or ended, or runs and opened
// no session yet; "" if nothing is known against it.
func (s *Slot) Unavailable() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	why := cmp.Or(s.startFault, s.lastEnd)
	switch {
	case s.active != nil && s.active.refused != "":
		why = "it opened no session: " + s.active.refused
	case s.active != nil:
		return ""
	}
	return process.Clip(strings.Join(strings.Fields(why), " "), maxWhy)
}

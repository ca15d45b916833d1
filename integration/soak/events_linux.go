package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// maxEvents are kept in memory: enough for the rounds that a violation can be about.
const maxEvents = 20_000

// event is something that the injector or the client did or saw.
type event struct {
	at   time.Duration // since the beginning of the run
	who  string        // a plugin, "host", "client"
	text string
}

func (e event) String() string { return fmt.Sprintf("%9.3f %-8s %s", e.at.Seconds(), e.who, e.text) }

// events is the log of a run. It is safe for concurrent use.
type events struct {
	began time.Time
	out   io.Writer

	mu   sync.Mutex
	kept []event
}

func (e *events) add(who, format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	one := event{time.Since(e.began), who, fmt.Sprintf(format, args...)}
	if len(e.kept) == maxEvents {
		e.kept = append(e.kept[:0], e.kept[maxEvents/2:]...)
	}
	e.kept = append(e.kept, one)
	fmt.Fprintln(e.out, one) // a log that cannot be written is not what is tested
}

// around are the events of a plugin, and those of everything, between two moments; at most most of them, the last.
func (e *events) around(who string, from, to time.Duration, most int) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var found []string
	for _, one := range e.kept {
		if one.at < from || one.at > to || who != "" && one.who != who && one.who != "host" && !strings.HasPrefix(one.who, "round") {
			continue
		}
		found = append(found, one.String())
	}
	return found[max(0, len(found)-most):]
}

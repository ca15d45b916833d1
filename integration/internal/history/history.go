// Package history decides from the outside whether a host kept its promises. While a test runs, clients record what they asked and got, whoever
// switches versions records that, and plugins write a ledger of what they really did. Check compares the three afterwards.
//
//	I1  every request that was not cancelled gets one answer, a cancelled one at most one
//	I2  no answer to what was never asked, or was answered before
//	I3  nothing that must not be repeated is in the ledger twice
//	I4  "ok" is in the ledger, "not executed" is not, "unknown" is in it at most once
//	I5  each line is one JSON-RPC object in UTF-8 without repeated names
//	I6  ids come back byte for byte
//	I7  an answer comes from a version that was active while the call was open, and no later call from an older one
//	I8  a list is that of one version of each plugin, no older than the last switch, and the client hears of changes
//	I9  if nothing but upgrades happens, every call succeeds
//
// The checker knows nothing of sox-host: it gets no code of it to trust.
package history

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// Kind says what may be repeated.
type Kind uint8

// The kinds of calls.
const (
	Read       Kind = iota // leaves no trace in the ledger
	Idempotent             // may be in the ledger more than once
	Once
)

// Outcome is what a caller was told.
type Outcome uint8

// The outcomes.
const (
	None    Outcome = iota // nothing yet
	OK                     // a result
	NotRun                 // an error that says it was not executed
	Unknown                // an error that says it may have been executed
	Failed                 // any other error
)

func (o Outcome) String() string { return [...]string{"none", "ok", "not run", "unknown", "failed"}[o] }

// Op is one call.
type Op struct {
	Nonce     string // unique; names the call in the ledger
	ID        string // raw JSON-RPC id
	Plugin    string
	Kind      Kind
	Invoked   time.Duration // since the beginning
	Answered  time.Duration // when the first answer came; meaningless before
	Cancelled bool
	Answers   int
	Outcome   Outcome
	Version   string // of the plugin that answered, "" if the answer does not say
	Detail    string // of an error
}

// Switch is a change of version. Its cutover is somewhere between Began and Ended.
type Switch struct {
	Plugin string
	To     string
	Began  time.Duration
	Ended  time.Duration
	Failed bool // the old version went on

	// Uncertain: it may not have happened, or not for long enough for the client to be told of it.
	Uncertain bool
}

// Listing is what one tools/list gave: for each plugin its tools, in order.
type Listing struct {
	Asked    time.Duration
	Answered time.Duration
	Tools    map[string][]string
}

// Entry is one line of a ledger.
type Entry struct {
	Nonce   string
	Version string
	PID     string
}

// History is what happened.
type History struct {
	Ops      []*Op
	Ledger   []Entry
	Switches []Switch        // in the order they began; those of one plugin do not overlap
	Listings []Listing       // in the order they were asked
	Notices  []time.Duration // when notifications/tools/list_changed came
	Strays   []string        // raw ids of answers that belong to no call
	BadLines []string        // what CheckLine said

	First        map[string]string              // plugin → version at the beginning
	Lists        map[string]map[string][]string // plugin → version → its tools; nil = lists are not checked
	UpgradesOnly bool                           // nothing crashed and nothing was cancelled: I9 applies
}

// Recorder fills a History. It is safe for concurrent use.
type Recorder struct {
	began time.Time

	mu  sync.Mutex
	h   History
	ids map[string]*Op
}

// NewRecorder begins a history. first are the versions that are active.
func NewRecorder(first map[string]string) *Recorder {
	return &Recorder{began: time.Now(), h: History{First: first}, ids: map[string]*Op{}}
}

// Now is the time of the history.
func (r *Recorder) Now() time.Duration { return time.Since(r.began) }

// At is a moment of the clock in the time of the history.
func (r *Recorder) At(t time.Time) time.Duration { return t.Sub(r.began) }

// Invoke records a call, before it is written.
func (r *Recorder) Invoke(nonce, id, plugin string, kind Kind) *Op {
	op := &Op{Nonce: nonce, ID: id, Plugin: plugin, Kind: kind, Invoked: r.Now()}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Ops = append(r.h.Ops, op)
	r.ids[id] = op
	return op
}

// Cancel records that a call was withdrawn, before that is written.
func (r *Recorder) Cancel(op *Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	op.Cancelled = true
}

// Answer records an answer by its raw id.
func (r *Recorder) Answer(id string, outcome Outcome, version, detail string) {
	at := r.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	op := r.ids[id]
	if op == nil {
		r.h.Strays = append(r.h.Strays, id)
		return
	}
	if op.Answers++; op.Answers == 1 {
		op.Answered, op.Outcome, op.Version, op.Detail = at, outcome, version, detail
	}
}

// Switch records a change of version that do makes; do returns whether it succeeded.
func (r *Recorder) Switch(plugin, to string, do func() bool) {
	s := Switch{Plugin: plugin, To: to, Began: r.Now()}
	s.Failed = !do()
	s.Ended = r.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Switches = append(r.h.Switches, s)
}

// Switched records a change of version that somebody watched: its times are of the history.
func (r *Recorder) Switched(s Switch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Switches = append(r.h.Switches, s)
}

// Listed records a list. asked is the time before the request was written.
func (r *Recorder) Listed(asked time.Duration, tools map[string][]string) {
	l := Listing{Asked: asked, Answered: r.Now(), Tools: tools}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Listings = append(r.h.Listings, l)
}

// Notice records list_changed.
func (r *Recorder) Notice() {
	at := r.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Notices = append(r.h.Notices, at)
}

// BadLine records a line that CheckLine refused.
func (r *Recorder) BadLine(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.BadLines = append(r.h.BadLines, err.Error())
}

// History ends the recording.
func (r *Recorder) History() *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &r.h
}

// ReadLedger reads a ledger: "nonce version pid" on each line. A last line without its newline counts, since its bytes are there.
func ReadLedger(path string) ([]Entry, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var entries []Entry
	for line := range strings.Lines(string(raw)) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("ledger %s: the line %q is torn", path, line)
		}
		entries = append(entries, Entry{fields[0], fields[1], fields[2]})
	}
	return entries, nil
}

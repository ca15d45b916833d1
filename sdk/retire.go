package sdk

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// RetireState is where a Retirer stands.
type RetireState uint8

const (
	RetireOff      RetireState = iota // not armed, or stopped: it never retires by itself
	RetireArmed                       // the idle window is watched
	RetireRunning                     // the steps run
	RetireFinished                    // the steps have run
)

func (s RetireState) String() string {
	return [...]string{"off", "armed", "retiring", "retired"}[s]
}

// RetireStep is one step of retiring. Its context ends with the step's timeout.
type RetireStep struct {
	Name string
	Run  func(ctx context.Context) error
}

// The kinds of RetireEvent.
const (
	EventArmed      = "armed"
	EventFired      = "fired"              // the timer fired; what follows depends on whether there was work
	EventBegin      = "retire-begin"       // Reason is set
	EventStepFailed = "retire-step-failed" // Step and Err are set; the next step runs all the same
	EventRetired    = "retired"            // Reason is set
)

// RetireEvent tells what a Retirer did.
type RetireEvent struct {
	Type   string
	Reason string
	Step   string
	Err    error
}

// RetirerConfig configures a Retirer. There is no place in it for who is connected: presence never keeps a process
// alive, only work does.
type RetirerConfig struct {
	// IdleWindow is how long after the last work the steps run. Required.
	IdleWindow time.Duration
	// IsBusy says that work goes on which the Retirer was not told of. Keep it about work. One that panics counts as
	// busy. nil means no.
	IsBusy func() bool
	// Steps run in order, each whatever became of the one before.
	Steps []RetireStep
	// StepTimeout bounds a step: then it counts as failed, the next one runs, and it is left behind. 0 means no bound.
	StepTimeout time.Duration
	// OnEvent is called for each event, one at a time. One that panics is ignored.
	OnEvent func(RetireEvent)
}

// Retirer runs its steps once, when nothing has been done for a while. It is driven by work alone, sets no signal
// handler and never exits the process. Make it with NewRetirer; all methods are safe for concurrent use.
//
//	off ──Arm──► armed ──idle window over──► retiring ──steps──► retired
//	 └──────────────┴───────── Retire ──────────▲
type Retirer struct {
	cfg RetirerConfig

	mu       sync.Mutex
	state    RetireState
	working  int       // Work calls, and whatever else began, that have not ended
	lastWork time.Time // the last Arm, Touch or end of work
	timer    *time.Timer
	finished chan struct{} // closed when the steps have run

	events sync.Mutex // one event at a time
}

// NewRetirer returns a Retirer that is off. It panics without an idle window.
func NewRetirer(cfg RetirerConfig) *Retirer {
	if cfg.IdleWindow <= 0 {
		panic(fmt.Sprintf("sdk.NewRetirer: idle window %v: want more than 0", cfg.IdleWindow))
	}
	return &Retirer{cfg: cfg, finished: make(chan struct{})}
}

// State returns where it stands.
func (r *Retirer) State() RetireState { r.mu.Lock(); defer r.mu.Unlock(); return r.state }

// Done is closed when the steps have run.
func (r *Retirer) Done() <-chan struct{} { return r.finished }

// Arm starts the watch, and the idle window with it. Nothing retires by itself before. Calling it again does nothing.
func (r *Retirer) Arm() {
	r.mu.Lock()
	if r.state != RetireOff {
		r.mu.Unlock()
		return
	}
	r.state = RetireArmed
	r.lastWork = time.Now()
	r.timer = time.AfterFunc(r.cfg.IdleWindow, r.fire)
	r.mu.Unlock()
	r.emit(RetireEvent{Type: EventArmed})
}

// Stop ends the watch; Arm may start it again. Steps that run already go on.
func (r *Retirer) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == RetireArmed {
		r.state = RetireOff
		r.timer.Stop()
	}
}

// Touch says that something was done just now, or that something the process was kept for went away: the idle window
// starts anew.
func (r *Retirer) Touch() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastWork = time.Now()
}

// Work runs f as work: busy until it returns, and the idle window starts then, also when it fails or panics.
func (r *Retirer) Work(f func() error) error {
	r.mu.Lock()
	r.working++
	r.mu.Unlock()
	defer r.end()
	return f()
}

// begin and end are Work for what does not end in the function in which it began. begin declines once the steps run.
func (r *Retirer) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state >= RetireRunning {
		return false
	}
	r.working++
	return true
}

func (r *Retirer) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.working--
	r.lastWork = time.Now()
}

// Idle is what IdleDue decides by.
type Idle struct {
	Busy, Retiring bool
	LastWork, Now  time.Time
	Window         time.Duration
}

// IdleDue is the arithmetic of a Retirer: how long until it is due, 0 when it is. ok is false while it cannot be: busy
// or retiring. A clock that went backwards never makes it wait longer than the window.
func IdleDue(i Idle) (due time.Duration, ok bool) {
	if i.Busy || i.Retiring {
		return 0, false
	}
	return min(max(0, i.Window-i.Now.Sub(i.LastWork)), i.Window), true
}

// fire runs on the timer's goroutine.
func (r *Retirer) fire() {
	r.emit(RetireEvent{Type: EventFired})
	busy := r.busy() // the author's code: not under the lock
	r.mu.Lock()
	if r.state != RetireArmed {
		r.mu.Unlock()
		return
	}
	due, ok := IdleDue(Idle{Busy: busy || r.working > 0, LastWork: r.lastWork, Now: time.Now(), Window: r.cfg.IdleWindow})
	if !ok {
		due = r.cfg.IdleWindow // looks again later: retiring may be late by one window, and is never early
	}
	if due > 0 {
		r.timer.Reset(due)
		r.mu.Unlock()
		return
	}
	r.state = RetireRunning // decided under the lock that work takes: nothing can begin in between
	r.mu.Unlock()
	r.run("idle")
}

func (r *Retirer) busy() (busy bool) {
	if r.cfg.IsBusy == nil {
		return false
	}
	defer func() {
		if recover() != nil {
			busy = true // never retire on a guess
		}
	}()
	return r.cfg.IsBusy()
}

// Retire runs the steps now, busy or not, and returns when they have run. Only the first call does; others wait for it.
func (r *Retirer) Retire(reason string) {
	r.mu.Lock()
	first := r.state < RetireRunning
	if first {
		r.state = RetireRunning
		if r.timer != nil {
			r.timer.Stop()
		}
	}
	r.mu.Unlock()
	if first {
		r.run(reason)
	}
	<-r.finished
}

func (r *Retirer) run(reason string) {
	r.emit(RetireEvent{Type: EventBegin, Reason: reason})
	for _, step := range r.cfg.Steps {
		if err := r.step(step); err != nil {
			r.emit(RetireEvent{Type: EventStepFailed, Reason: reason, Step: step.Name, Err: err})
		}
	}
	r.mu.Lock()
	r.state = RetireFinished
	r.mu.Unlock()
	r.emit(RetireEvent{Type: EventRetired, Reason: reason})
	close(r.finished)
}

// step runs one step, at most for the timeout.
func (r *Retirer) step(s RetireStep) error {
	ctx := context.Background()
	if r.cfg.StepTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.cfg.StepTimeout)
		defer cancel()
	}
	done := make(chan error, 1)
	go func() { // ends with the step; one that ignores its context is left behind
		returned := false
		defer func() {
			if !returned {
				done <- fmt.Errorf("panic: %v", recover())
			}
		}()
		err := s.Run(ctx)
		returned = true
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("still running after %v: %w", r.cfg.StepTimeout, context.Cause(ctx))
	}
}

func (r *Retirer) emit(e RetireEvent) {
	if r.cfg.OnEvent == nil {
		return
	}
	r.events.Lock()
	defer r.events.Unlock()
	defer func() { _ = recover() }() // a listener that panics must not stop what it listens to
	r.cfg.OnEvent(e)
}

package slot

import "time"

const (
	// DefaultInFlight is how many requests one process may have at a time: 512. More would only lie unread in it, and
	// be lost with it.
	DefaultInFlight = 512
	// DefaultWaiting is how many more wait for a place there: 4,096, as many as one client alone may have open.
	DefaultWaiting = 4096
	// DefaultQueue is how many wait while there is no process: 256. A plugin that is away for long fails the oldest
	// early, not all of them late.
	DefaultQueue = 256
)

// Settings are the times and bounds of one slot. Zero values get the defaults.
type Settings struct {
	StartTimeout time.Duration // launch to ready, opened and listed; default 10 s
	CallTimeout  time.Duration // bound of a request that names none; default 1 h, longer than any client waits
	DrainTimeout time.Duration // bound of a drain; default 30 s
	GiveUp       time.Duration // bound of a request's wait for a generation; default 10 s, or a longer StartTimeout
	Probation    time.Duration // after a cutover, a crash rolls back; default 30 s
	IdleRetire   time.Duration // stop after this long without work; 0 = never
	StopTimeout  time.Duration // from the wish that a process ends to SIGKILL; default 2.5 s. A closing host is quicker
	// HealthTimeout is how long a plugin with open requests may say nothing before it is asked, and again before it
	// is killed. 0 = DefaultHealthTimeout for plugins that declare health, and for ever for others; negative = for
	// ever.
	HealthTimeout time.Duration
	InFlight      int  // requests that one process may have at a time; default DefaultInFlight
	Waiting       int  // requests that may wait for a place there; default DefaultWaiting
	Queue         int  // requests that may wait for a generation; default DefaultQueue
	Serial        bool // one request at a time, whatever InFlight is
	Exclusive     bool // one instance at a time: an upgrade drains and stops the old one first
	Required      bool // clients are not served without it, see Missing
	KeepWarm      bool // the old process of an upgrade stays until the probation ends, not only for the settle time
}

func (s Settings) withDefaults() Settings {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&s.StartTimeout, 10 * time.Second},
		{&s.CallTimeout, time.Hour},
		{&s.DrainTimeout, 30 * time.Second},
		{&s.GiveUp, 10 * time.Second},
		{&s.Probation, 30 * time.Second},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if s.Queue <= 0 {
		s.Queue = DefaultQueue
	}
	if s.InFlight <= 0 {
		s.InFlight = DefaultInFlight
	}
	if s.Waiting <= 0 {
		s.Waiting = DefaultWaiting
	}
	return s
}

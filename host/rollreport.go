package host

// RollReport is the result of Roll. Plugins are independent of each other.
type RollReport struct {
	Exit    Exit         `json:"exit"`
	Plugins []PluginRoll `json:"plugins"`
}

// PluginRoll is the result for one plugin on all hosts.
type PluginRoll struct {
	Plugin string `json:"plugin"`
	Exit   Exit   `json:"exit"`
	Error  string `json:"error,omitempty"`
	// Report is the canary's, or that of the probe without a host.
	Report Report       `json:"report"`
	Hosts  []HostReport `json:"hosts"`
}

// Outcome says what became of one host.
type Outcome string

const (
	OutcomeDone         Outcome = "done"         // as its Report says
	OutcomeFailed       Outcome = "failed"       // its old generation serves
	OutcomeWentBack     Outcome = "went-back"    // it had done it; another host failed
	OutcomeStuck        Outcome = "stuck"        // it had done it and could not go back
	OutcomeUntouched    Outcome = "untouched"    // it was not asked
	OutcomeUnresponsive Outcome = "unresponsive" // it did not answer; it catches up when it starts its plugin again
	OutcomeEnded        Outcome = "ended"        // it ended in between; its next start uses the committed build
	OutcomeUnknown      Outcome = "unknown"      // the command stopped waiting; the host goes on by itself
)

// HostReport is the result for one plugin on one host.
type HostReport struct {
	PID     int     `json:"pid"`
	Canary  bool    `json:"canary,omitempty"`
	Outcome Outcome `json:"outcome"`
	Error   string  `json:"error,omitempty"`
	Report  *Report `json:"report,omitempty"`

	exit Exit // for a host without a report
}

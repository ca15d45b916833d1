package host

// RollReport is the result of Roll. Plugins are independent of each other.
type RollReport struct {
	Exit    Exit         `json:"exit"`
	Plugins []PluginRoll `json:"plugins"`
	// Skipped are plugins that an upgrade of everything left out: the plugins folder has no file of them any more, and
	// running hosts serve them until their clients end.
	Skipped []string `json:"skipped,omitempty"`
}

// PluginRoll is the result for one plugin on all hosts.
type PluginRoll struct {
	Plugin string `json:"plugin"`
	Exit   Exit   `json:"exit"`
	Error  string `json:"error,omitempty"`
	// Held is the version that an upgrade would have chosen if the plugin were not pinned, when it is above the pin.
	Held string `json:"held_by_pin,omitempty"`
	// Report is the canary's, or that of the probe without a host.
	Report Report       `json:"report"`
	Hosts  []HostReport `json:"hosts"`
	// Others is how many running hosts do not have the plugin yet. Those that watch the folder take it up by themselves.
	Others int `json:"other_hosts,omitempty"`
}

// Outcome says what became of one host.
type Outcome string

const (
	OutcomeDone         Outcome = "done"         // as its Report says
	OutcomeFailed       Outcome = "failed"       // its old generation serves, if there was one
	OutcomeWentBack     Outcome = "went-back"    // it had done it; another host failed
	OutcomeStuck        Outcome = "stuck"        // it had done it and could not go back
	OutcomeUntouched    Outcome = "untouched"    // it was not asked
	OutcomeAttached     Outcome = "attached"     // somebody else runs its process, and replaces it
	OutcomeUnresponsive Outcome = "unresponsive" // it did not answer; it catches up when it starts its plugin again
	OutcomeEnded        Outcome = "ended"        // it ended in between; its next start uses the committed build
	OutcomeUnknown      Outcome = "unknown"      // the command stopped waiting; the host goes on by itself
)

// HostReport is the result for one plugin on one host.
type HostReport struct {
	PID     int     `json:"pid"`
	Canary  bool    `json:"canary,omitempty"`
	Outcome Outcome `json:"outcome"`
	// Before is the state of the plugin in this host when the operation began: active, cold, broken or another one of
	// PluginStatus; "" when the host was not asked.
	Before string  `json:"before,omitempty"`
	Error  string  `json:"error,omitempty"`
	Report *Report `json:"report,omitempty"`

	exit Exit // for a host without a report
}

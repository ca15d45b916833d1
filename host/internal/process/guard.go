//go:build linux || darwin

package process

// The guard's descriptors are the plugin's (0, 1, 2 and perhaps 3), which it
// hands on and closes, and this one.
//
// controlFD is the guard's end of the control socket. JSON objects go both
// ways: one order with the launch, then orders; one report with the pid or the
// failure, then one with the exit. The host's end is in no other process, so
// end of file means that the host is gone.
const controlFD = 4

// guardEnviron is the whole environment of a guard: nothing of the host's or
// the plugin's. It works in one thread's worth of time at most.
var guardEnviron = []string{"GOMAXPROCS=1"}

// Orders of the host.
const (
	orderTerminate = "terminate" // SIGTERM to the plugin's group
	orderKill      = "kill"      // SIGKILL to the whole tree
)

// order goes from the host to the guard.
type order struct {
	Launch *launch `json:"launch,omitempty"` // the first order, and only the first
	Do     string  `json:"do,omitempty"`
}

// launch is what the guard needs to start the plugin. It travels on the socket
// and not on the command line, because a command line is public. The strings
// are bytes, because JSON would change those that are not UTF-8.
type launch struct {
	Argv   [][]byte `json:"argv"` // the first is the path
	Env    [][]byte `json:"env"`
	Dir    []byte   `json:"dir,omitempty"`
	Socket bool     `json:"socket"` // descriptor 3 is the plugin's
}

// toBytes and toStrings convert between a launch and the rest.
func toBytes(texts []string) [][]byte {
	out := make([][]byte, len(texts))
	for i, text := range texts {
		out[i] = []byte(text)
	}
	return out
}

func toStrings(texts [][]byte) []string {
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = string(text)
	}
	return out
}

// report goes from the guard to the host.
type report struct {
	Pid    int     `json:"pid,omitempty"`    // the plugin runs
	Errno  int     `json:"errno,omitempty"`  // the exec failed with this
	Failed string  `json:"failed,omitempty"` // or with this, which is no errno
	Status *uint32 `json:"status,omitempty"` // the plugin's wait status
}

// guardError is a failure of the guard itself, not of the plugin.
type guardError struct{ err error }

func (e *guardError) Error() string { return e.err.Error() }
func (e *guardError) Unwrap() error { return e.err }

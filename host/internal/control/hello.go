package control

import "time"

const (
	// Protocol is the version of what Hello and the host's methods mean. Hosts keep running while the command
	// line is replaced by a newer one, so commands look at it first.
	Protocol = 1

	// methodHello is answered by the reader, whatever the handler does: it says that the host runs at all.
	methodHello = "control.hello"

	methodProgress = "$/progress"
)

// Hello is what a host says about itself.
type Hello struct {
	Protocol int       `json:"protocol"`
	PID      int       `json:"pid"`
	Since    time.Time `json:"since"`
}

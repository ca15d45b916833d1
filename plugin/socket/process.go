package socket

// ProcessStartToken names one run of a process id: a process that gets the same number later has another token, up to the grain of the system's
// clock (10 ms on Linux, 1 µs on macOS). It does not depend on locale or time zone and differs after a restart of the machine. A process that
// ended and was not yet waited for keeps its token.
func ProcessStartToken(pid int) (string, error) {
	p, err := readProcess(pid)
	return p.token, err
}

// SameProcess says whether the process that had this token is alive. It is false for a process that is gone, waits to be reaped or has another
// token; where nothing can be told apart, because the token is missing or cannot be read now, a live pid counts as the same: better to keep a
// record too long than to take a live process for a dead one.
//
// It is for messages and for sweeping up after a crash. Who holds a [Lock] is for the kernel to say.
func SameProcess(pid int, token string) bool {
	return sameProcess(pid, token, processExists, readProcess)
}

func sameProcess(pid int, token string, exists func(int) bool, read func(int) (process, error)) bool {
	if pid <= 0 || !exists(pid) {
		return false
	}
	p, err := read(pid)
	switch {
	case err != nil:
		return exists(pid) // it may have ended between the two
	case p.zombie:
		return false
	}
	return token == "" || token == p.token
}

// process is what the system tells about a pid.
type process struct {
	token  string
	zombie bool // it ended and was not waited for
}

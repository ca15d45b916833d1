package process

import "time"

// Within waits for an event, at most d, and reports whether it has happened. It looks once even if d is zero.
func Within(event <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-event:
		return true
	case <-timer.C:
	}
	select {
	case <-event:
		return true
	default:
		return false
	}
}

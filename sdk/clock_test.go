package sdk_test

import "time"

// pass lets virtual time pass, inside a synctest bubble.
func pass(d time.Duration) { <-time.NewTimer(d).C }

package sdk_test

import (
	"runtime"
	"time"
)

func goexit() { runtime.Goexit() }

// pass lets virtual time pass, inside a synctest bubble.
func pass(d time.Duration) { <-time.NewTimer(d).C }

//go:build !linux

// Bench measures what a call through sox-host costs. It needs Linux, whose /proc says what a process has used.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "bench: needs Linux")
	os.Exit(2)
}

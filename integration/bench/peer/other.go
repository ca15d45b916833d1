//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "peer: the benchmark needs Linux")
	os.Exit(2)
}

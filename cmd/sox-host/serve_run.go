package main

import (
	"context"
	"errors"

	"github.com/sox-host/sox-host/host"
)

// runHost runs a host until its client leaves or ctx ends.
func runHost(_ context.Context, _ host.Config) error {
	return errors.New("this build has no host in it")
}

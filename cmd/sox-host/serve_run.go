package main

import (
	"context"

	"github.com/sox-host/sox-host/host"
)

// runHost runs a host until its client leaves or ctx ends.
func runHost(ctx context.Context, cfg host.Config) error {
	cfg.Version = readVersion().Version
	h, err := host.New(cfg)
	if err != nil {
		return err
	}
	return h.Run(ctx)
}

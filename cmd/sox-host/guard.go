package main

import (
	"context"

	"github.com/sox-host/sox-host/host"
)

// guardCommand is here for its name only: run starts it before flags and signals are looked at.
func guardCommand() *command {
	return &command{
		name:    host.GuardCommand,
		short:   "Guard one plugin process (started by serve itself)",
		hidden:  true,
		maxArgs: -1,
		run: func(_ context.Context, c *call) error {
			return exitWith(host.Exit(host.RunGuard(c.args)))
		},
	}
}

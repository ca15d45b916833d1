//go:build race

package rig

// raceEnabled: tests that detect races run a host that does so too.
const raceEnabled = true

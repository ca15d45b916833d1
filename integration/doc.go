// Package integration tests sox-host from the outside: the real binary, real plugins, real clients. Its packages under internal can be used by
// longer runs: rig starts hosts and watches them, history decides whether what happened keeps the promises.
package integration

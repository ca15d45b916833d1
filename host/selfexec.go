package host

import "github.com/sox-host/sox-host/host/internal/process"

// GuardCommand is the hidden command by which a program that embeds a host starts itself as the guard of a plugin:
// Config.Guard is the program and this word, and RunGuard is what main then calls.
const GuardCommand = "__guard"

// RunGuard is the body of the guard process. It takes over the whole process; main exits with what it returns.
func RunGuard(args []string) int { return process.RunGuard(args) }

// MarkInheritedCloexec keeps descriptors that a client leaked into this process from going on to every plugin, where
// they would keep the client waiting for an end of file. Call it first thing in main.
func MarkInheritedCloexec() error { return process.MarkInheritedCloexec() }

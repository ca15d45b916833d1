// Package sdk is what the author of a plugin imports. A plugin is a program whose functions are tools for models, plain
// JSON-RPC methods, or both; sox-host starts it, and replaces it by another version while calls are running.
//
//	package main
//
//	import (
//		"context"
//
//		"github.com/sox-host/sox-host/sdk"
//	)
//
//	type text struct {
//		Text string `json:"text" jsonschema:"what to say"`
//	}
//
//	func main() {
//		say := func(_ context.Context, in text) (text, error) { return in, nil }
//		p := sdk.New("echo", "1.0.0")
//		sdk.Tool(p, "say", "Says the text again.", say, sdk.ReadOnly())
//		sdk.Method(p, "echo.say", say, sdk.ReadOnly())
//		sdk.Main(p)
//	}
//
// Build it and run sox-host install echo --version 1.0.0 --start: clients get the tool echo__say, and programs the
// method echo.say. The same binary started by hand is an ordinary MCP server on stdin and stdout. sox-host new writes
// such a program with a test; sox-host dev builds it at every save and swaps it under its clients.
//
// # Where to look
//
//   - a plugin: [New] and its settings [WithTitle], [WithInstructions], [WithLimits], [Exclusive], [Serial],
//     [RetireWhenIdle]; at the end [Main], or [Serve] in a program that does more, or [ServeListener] where the program
//     listens itself
//   - what it offers: [Tool], [Method], [HandleFunc], with the options [ReadOnly], [Idempotent], [Destructive],
//     [OpenWorld], [Title], [Meta], [CustomInput]
//   - inside a handler: [SessionFrom], [ProjectPath], [Progress], [Log]; for results that are more than a value
//     [Result] with [Text], [Image], [Audio], [Link], [Embed]; for errors [InvalidParams], [Errorf]
//   - over its life: [Plugin.OnSessionOpen], [Plugin.OnSessionClose], [Plugin.Health], [State], [Plugin.OnShutdown]
//   - for its owner: [Plugin.Logger], [Plugin.Redact], [Plugin.LockReadOnly]
//   - in a program of one's own that is to end when it has nothing to do, plugin or not: [NewRetirer] and [Retirer]
//
// [MCPServer] and its like are for adapters. Package inputschema takes a JSON schema of your own for an input, package
// mcpserver makes a server of the official Go SDK a plugin, package sdktest drives a plugin in a test.
//
// # Handlers
//
// [Tool] and [Method] take a typed function. Its input is decoded strictly and checked against a schema derived from
// the type; what does not fit is refused before the function runs, with the member named. Functions run concurrently,
// each on its own goroutine, with a context that ends when the caller cancels, the deadline passes, the session closes
// or the plugin stops; [context.Cause] says which. In that context [SessionFrom], [ProjectPath], [Progress] and [Log]
// work.
//
// Every request is answered exactly once, whatever the function does. If its context ends first the answer is given at
// that moment, and what the function returns later is dropped. If it panics, the caller gets an error, the log gets the
// stack, and the plugin goes on.
//
// Declare what a function does: a [ReadOnly] or [Idempotent] one may be repeated by the host after a crash, any other
// never is, and is acknowledged before it runs so that the host knows which case it has.
//
// # Limits
//
// [Limits] bound what runs, waits, comes in and goes out; [DefaultLimits] are generous and [WorkerLimits] strict. A
// request beyond them is refused with a code that says it did not run. A place is given back when the answer has been
// taken by the host, so a host that does not read fills the plugin up and not its memory. A host reads some 10,000
// notifications a second: [Progress], [Log] and [Session.NotifyWait] wait for it, [Session.Notify] fails
// unless it says that a list has changed.
//
// # Life
//
// [Main] serves the way the environment says, answers what is open when it is told to stop, and exits.
// [Plugin.OnSessionOpen] and [Plugin.OnSessionClose] see clients come and go, [State] hands state to the next version,
// [Plugin.Health] and [Plugin.OnShutdown] do what they say. Connections, sessions and health checks keep nothing alive:
// only work does, see [Retirer].
//
// Take configuration and credentials from the environment and the disk inside the handler that uses them, not at start:
// what a call uses is then what is valid at the time of the call. Name members that hold credentials with
// [Plugin.Redact].
//
// stdout belongs to the protocol or to nobody. [Plugin.Logger] writes to stderr, which the host keeps;
// what is printed to os.Stdout goes there too.
//
// # Start
//
// A plugin that uses this package is ready, from its exec on, in about 1.1 times the time of a Go program that writes
// one frame, as the README has measured. Whatever main and the initialisation of packages do before [Main] is added to
// that, at each start, each upgrade and each restart after a crash: open databases and files in the first call that
// needs them.
package sdk

// Package sdk is what the author of a plugin imports. A plugin is a program whose functions are tools for models, plain JSON-RPC methods, or both;
// sox-host starts it, and replaces it by another version while calls are running.
//
//	type In struct {
//		Text string `json:"text" jsonschema:"what to say"`
//	}
//	type Out struct {
//		Text string `json:"text"`
//	}
//
//	func say(ctx context.Context, in In) (Out, error) { return Out{in.Text}, nil }
//
//	func main() {
//		p := sdk.New("echo", "1.0.0")
//		sdk.Tool(p, "echo", "Says the text again.", say, sdk.ReadOnly())
//		sdk.Method(p, "echo.say", say, sdk.ReadOnly())
//		sdk.Main(p)
//	}
//
// Build it, copy it into the plugins folder as echo_v1.0.0, and run sox-host upgrade echo. The same binary started by hand is an ordinary MCP
// server on stdin and stdout.
//
// # Handlers
//
// [Tool] and [Method] take a typed function. Its input is decoded strictly and checked against a schema derived from the type; what does not fit is
// refused before the function runs, with the member named. Functions run concurrently, each on its own goroutine, with a context that ends when the
// caller cancels, the deadline passes, the session closes or the plugin stops; [context.Cause] says which. In that context [SessionFrom],
// [ProjectPath], [Progress] and [Log] work.
//
// Every request is answered exactly once, whatever the function does. If its context ends first the answer is given at that moment, and what the
// function returns later is dropped. If it panics, the caller gets an error, the log gets the stack, and the plugin goes on.
//
// Declare what a function does: a [ReadOnly] or [Idempotent] one may be repeated by the host after a crash, any other never is, and is
// acknowledged before it runs so that the host knows which case it has.
//
// # Limits
//
// [Limits] bound what runs, waits, comes in and goes out; [DefaultLimits] are generous and [WorkerLimits] strict. A request beyond them is refused
// with a code that says it did not run. A place is given back when the answer has been taken by the host, so a host that does not read fills the
// plugin up and not its memory.
//
// # Life
//
// [Main] serves the way the environment says, answers what is open when it is told to stop, and exits. [Plugin.OnSessionOpen] and
// [Plugin.OnSessionClose] see clients come and go, [State] hands state to the next version, [Plugin.Health] and [Plugin.OnShutdown] do what they
// say. Connections, sessions and health checks keep nothing alive: only work does, see [Retirer].
//
// Take configuration and credentials from the environment and the disk inside the handler that uses them, not at start: what a call uses is then
// what is valid at the time of the call. Name members that hold credentials with [Plugin.Redact].
//
// stdout belongs to the protocol or to nobody. [Plugin.Logger] and [Plugin.Slog] write to stderr, which the host keeps; what is printed to os.Stdout
// goes there too.
//
// Package sdktest drives a plugin in a test, package mcpserver makes a server of the official Go SDK a plugin.
package sdk

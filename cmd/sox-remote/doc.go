// Sox-remote is an MCP server on stdin and stdout that stands for one behind a url. Sox-host starts it for a manifest with
// a "url", so that the host itself is linked with no HTTP; any other MCP client may start it too. What it needs is in
// its environment, because every user of the machine can list command lines: see config.go and package wire.
//
// # A relay, not a client
//
// Params and results pass as the bytes they came in, in both eras, and ids as they are. So this is no Client of the
// official SDK, which would decode them into its types and lose what it does not know. It is the SDK's transports
// alone, which send and read, resume answers that broke off, and speak the older HTTP+SSE. What they leave to the
// Client is here:
//
//	courier.go     headers of every request, and what the SDK does not tell of the answer
//	httplink.go    one SDK connection for each envelope, so that a bad answer to one harms no other
//	standing.go    the stream for what belongs to no request, up to MCP 2025-11-25
//	handshake.go   the session, and another one when the server has forgotten it
//	listen.go      subscriptions since MCP 2026-07-28
//	tools.go       the arguments that headers repeat, since MCP 2026-07-28
//
// # What becomes of a request
//
//	the server                                  then
//	cannot have it: no connection, 429, 503     sent again, with pauses, for 10 s; then -32001, not executed
//	does not know the session: 404, or 400      greeted anew, then sent again
//	may have it: cut, 5xx, no usable answer     a read, or a tool that says so, is sent once more; else -32003
//	does not take it: 401, 405, another host    -32001, not executed, with what to do
//	answers with more than 16 MiB               -32006
//
// An HTTP error with the JSON-RPC error of the request in it passes as the answer. The first handshake does not wait for
// a server that is away, since whoever started this process has pauses of its own; see absent.go for what happens then.
package main

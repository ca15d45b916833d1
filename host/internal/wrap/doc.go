// Package wrap makes a plugin of any existing MCP server that speaks newline-delimited JSON-RPC on its
// stdin and stdout. To the slot a wrapped server is a plugin like any other: Launch returns a backend whose
// connection carries frames of protocol 1.
//
//	slot ─► rpc.Conn ══ in-memory pipe ══ rpc.Conn ─► session 1 ─► process, lines on stdin and stdout
//	                       frames              └────► session 2 ─► process
//
// # One process per session
//
// MCP over stdio has one client per process, so each sox/session.open that names an MCP revision starts the
// command once, and sox/session.close stops it. A session of plain JSON-RPC has no process: a wrapped server
// declares no methods of its own. A second open of a number replaces the first.
//
// The server sees plain JSON-RPC: no session, timeout_ms or ack member, and as ids the small integers that the
// host minted. Where this package has something of its own to ask (the handshake of a bridge, a ping), it uses
// the id of the host's request that made it necessary and that the server never sees; where none did, one from
// firstOwnID on.
//
// # Eras
//
// A session of the server's own era is passed through. Which era that is, is found out once for each build and
// remembered (Eras). A modern session asks for it beforehand: server/discover in a process of its own, see
// probe. A legacy session tries initialize first, since nearly every server has it, and asks only if that is
// refused without saying why. Two dialects serve the rest, with the translations of package bridge:
//
//	session  server   dialect        what is not one message for another
//	legacy   legacy   legacyDirect   nothing; what follows a log level waits until the server has answered that
//	modern   legacy   overLegacy     the handshake comes with the first request; a listen becomes subscriptions
//	legacy   modern   overModern     ping and log levels are answered here; subscriptions become one listen
//	modern   modern   modernDirect   nothing; the listen is the host's
//
// Errors pass as they are: the gateway gives those of every plugin the form of the client's era. What a legacy
// server asks of a modern client goes to the host, which puts it into the result of a call, and the other way
// round.
//
// # Deaths
//
// The unexpected end of any session's process ends the whole generation. The slot settles lost calls by the
// end of the connection, and a process is lost as wholly as a plugin is: telling the calls of one session
// from those of another would need a second way to lose a call. A host on stdio has one MCP session, so
// nobody pays for this; over HTTP the other sessions lose their calls too, as with any plugin that crashes.
// Exit and Tail are those of the process that ended first.
//
// # Junk
//
// What a server prints on stdout that is no JSON-RPC goes where its stderr goes and is never passed on.
// A message at the end of a line of junk is found. An answer that can be attributed but not used (no valid
// envelope, over the size limit) fails its request at once. Arrays are taken apart, whatever the revision.
package wrap

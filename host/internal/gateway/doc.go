// Package gateway is the client's side of the host: it answers what the catalog knows, routes everything
// else to the slot that owns it, and carries ids, tokens and names across.
//
//	front ─► Session.Line ─► classify (plain, legacy, modern) ─► answered from the view
//	                                                          └► route ─► call ─► slot.Dispatch
//	front ◄─ Session.answer ◄────────── call.Finish ◄──────────────────────── slot
//
// Choices where the protocol leaves room:
//
// # Who is spoken to how
//
//   - Every request is classified by itself: a request whose _meta names a protocol version is modern; after
//     initialize every other MCP request is legacy; a method that a plugin declared is plain JSON-RPC. A
//     client may mix all three on one pipe. MCP requests before initialize and without a version are refused.
//   - A plugin is told of each era as a session of its own. One that serves only the other era of MCP has a
//     second session for that, and package bridge translates; see overera.go and input.go.
//   - A question that a legacy plugin puts to a modern client does not say to which call it belongs. It counts
//     for the call of its plugin that was sent last.
//   - A call that waits for a modern client's input stays open in its generation, also while that is drained. Its
//     requestState is signed and names the call; once the call is gone, the retry is told to call again. The
//     requestState of a modern plugin passes through as it is: it is the plugin's to understand in any version.
//   - Tasks, of either era, are not passed on: plugins do not see that a client knows them.
//
// # Lists
//
//   - Capabilities are frozen by initialize, so tools, prompts, resources and completions are always offered,
//     each with listChanged: a later version of a plugin may add the first of them.
//   - Lists go out in one page, in the order of the plugins and then of each plugin's own list. One that is
//     longer than a line may be comes in pages, whose cursors end with the list.
//   - A list waits for plugins that start, for ListWait once per client; any other request waits for the plugin
//     that it seems to be for, for 10 s.
//   - Plain methods and resource uris belong to the first plugin, in that order, that declares them. A
//     resource that nobody lists belongs to the template with the longest literal start, else to the plugin that
//     linked to it, else to the first that knows it.
//
// # A client that does not read
//
// Answers wait for it, and so does whoever makes them: its reader, and the connection of the plugin that
// answered. Everything else is dropped (progress, log messages, updates), refused (questions of plugins) or tried
// again later (list_changed).
//
// # Subscriptions
//
// However many listens of a client hold a resource, its plugin is asked once per session. What is asked for before
// a plugin has said what it has is acknowledged, and asked of it when it has.
package gateway

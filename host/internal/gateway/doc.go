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
//   - A plugin hears of a legacy client's progress with what it asked, under its own token. Since 2026-07-28 clients send
//     none.
//   - A question that a legacy plugin puts to a modern client does not say to which call it belongs. It counts
//     for the call of its plugin that was sent last.
//   - A call that waits for a modern client's input stays open in its generation, also while that is drained. Its
//     requestState is signed and names the call; once the call is gone, the retry is told to call again. The
//     requestState of a modern plugin passes through as it is: it is the plugin's to understand in any version.
//   - Tasks, of either era, are not passed on: plugins do not see that a client knows them.
//
// # Lists
//
//   - Capabilities are frozen by initialize, so tools, prompts, resources, completions and log messages are always
//     offered: a plugin that has not spoken yet, or a later version of one, may be the first that has some. Only
//     experimental ones are those of the plugins that are known by then; of two with one name the first counts.
//   - Instructions are those of the plugins that are known when initialize, which waits for nobody, is answered. MCP
//     has no way to add to them: a plugin that starts for the first time says its own in the next session.
//   - Lists go out in one page, in the order of the plugins and then of each plugin's own list. One that is
//     longer than a line may be comes in pages, whose cursors end with the list. Then each plugin has its part of the
//     first page, since several clients read no other; see pages.go.
//   - One list of a plugin that fails or hangs is missing alone. What a client or a plugin does that has no meaning is
//     ignored or refused, counted, and said in status; see oddities.go.
//   - A list waits for plugins that start, for ListWait once per client; any other request waits for the plugin
//     that it seems to be for, for 10 s.
//   - Plain methods and resource uris belong to the first plugin, in that order, that declares them. A
//     resource that nobody lists belongs to the template with the longest literal start, else to the plugin that
//     linked to it, else to the first that knows it.
//
// # Bounds of one client
//
// What plugins together may hold of one client is bounded: open requests, their bytes, questions, calls that wait
// for input, progress. Within each bound one plugin may hold as much as it leaves to the others, half of it at the
// most (4,096 requests of 32 MiB), so that a stuck plugin delays only its own calls. The numbers are in share.go.
//
// # A client that does not read
//
// Answers wait for it, and so does whoever makes them: its reader, and the connection of the plugin that
// answered. Everything else is dropped (progress, log messages, updates), refused (questions of plugins) or tried
// again later (list_changed).
//
// # Locks
//
// From the outside in; whoever holds one takes only those behind it:
//
//	Gateway.mu ─► slot.Slot.mu       what the slots know, while views are merged
//	Session.mu ─► call.progressMu ─► the sink towards the client
//
// Gateway.mu and Session.mu are never held together. batch.mu, seenURIs.mu and oddities.mu are held alone. None is held
// across a write that waits, a line of the log, or a call of a slot that ends requests. Gateway.mu is held while the
// lists of a plugin that changed are made into a part of the views; no call of what is listed takes it.
//
// # Subscriptions
//
// However many listens of a client hold a resource, its plugin is asked once per session. What is asked for before
// a plugin has said what it has is acknowledged, and asked of it when it has.
package gateway

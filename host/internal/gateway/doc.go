// Package gateway is the client's side of the host: it answers what the catalog knows, routes everything
// else to the slot that owns it, and carries ids, tokens and names across.
//
//	front ─► Session.Line ─► classify (plain, legacy, modern) ─► answered from the catalog
//	                                                          └► route ─► call ─► slot.Dispatch
//	front ◄─ Session.write ◄─────────── call.Finish ◄──────────────────────── slot
//
// Choices where the protocol leaves room:
//   - Every request is classified by itself: a request whose _meta names a protocol version is modern; after
//     initialize every other MCP request is legacy; a method that a plugin declared is plain JSON-RPC. A
//     client may mix all three on one pipe. MCP requests before initialize and without a version are refused.
//   - A plugin is told of each era as a session of its own.
//   - Capabilities are frozen by initialize, so tools, prompts, resources and completions are always offered,
//     each with listChanged: a later version of a plugin may add the first of them.
//   - Lists go out in one page, in the order of the plugins and then of each plugin's own list.
//   - Plain methods and resource uris belong to the first plugin, in that order, that declares them.
package gateway

// Package rpc is a connection with memory: it sends requests over a byte stream, remembers which are open,
// and retires every one of them exactly once: with the answer, or with how far it got when the stream ended.
//
// Both ends use it: the host towards plugins, plugins towards the host, and the command line towards a
// running host. It never decodes params or results. There is one reader per connection, the goroutine in Run;
// anyone may write. A Conn starts no goroutine of its own except while its peer does not read (Sink). A Redial
// has one, for as long as it is open.
//
// Stable within protocol 1.
package rpc

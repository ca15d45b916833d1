// Package slot is a plugin name inside a running host: its generations, the requests on their way through
// it, and the swap of one generation for another while requests are in flight.
//
//	            Dispatch                 Retire
//	gateway ───────────────► slot ─► generation ─► rpc.Conn ─► plugin process
//	                          │ queue while none is active
//	                          └ every Request ends exactly once: answered, failed, or cancelled
//
// A slot starts its plugin when it is first needed, restarts it when it dies, keeps what is known about its
// lists, and carries out upgrades: a candidate is started and checked beside the active generation, the
// choice is committed to disk, one pointer moves, and the old generation drains. Nothing here knows the
// client's side; the gateway is told through Observer, Peer and Owner.
//
// Lock order: Slot.mu before the locks of rpc.Conn. Slot.mu is held for assignments and for appends to a
// connection's memory, never across I/O, a process start, or a call to Observer, Peer or Owner.
package slot

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
// One operation at a time holds a slot (Slot.op): a start, an upgrade up to its cutover, a rollback or a
// retirement. A rollback that a crash in probation demands comes before any other, see acquire. What an upgrade
// has replaced is drained and stopped by that upgrade, beside later operations, unless it takes over again.
//
// # Bounds
//
// One process has at most Settings.InFlight requests (512) and rpc.PluginBacklogBytes (32 MiB) that it has not
// read. What is beyond the first waits in order, up to Settings.Waiting requests (4,096), for a place; one more, or
// one beyond the second, is refused with wire.CodeBusy. While there is no process, Settings.Queue requests (256)
// wait, and one more fails the oldest with wire.CodeUnavailable. What these requests hold in bytes is bounded by
// whoever dispatches them. A plugin that is silent for twice HealthTimeout with requests open is killed, see
// health.go. Its lists are read at most every 200 ms behind a burst, however often it says that they change, see pace.go.
//
// # Choices where the words leave room
//
//   - A request that was sent, waits to be repeated and cannot be, ends with outcome unknown, not with -32001:
//     "executed":"no" is only said of what provably never ran.
//   - At the drain limit a plugin that has not even read some requests is stopped at once. That proves that
//     they never ran, and they go to the new generation whatever they are.
//   - An open breaker lets a request through as the probe 30 s after the last failure. The doubling of the
//     cooldown is for attempts that nobody waits for.
//   - A request waits for a generation as long as the plugin may take to start, if that is more than the
//     give-up time, and while an upgrade holds the slot.
//   - A clean exit is a crash if a request was in flight, if somebody waits, or within 5 s of the start. A process
//     that is shared or attached may end at any time, after a farewell: see joined.go.
//   - A request that a plugin refuses as shutting down, not executed, is not the client's: the next process gets it.
//   - A build that crashed in its probation is skipped by later upgrades unless it is named. If another upgrade
//     replaces it before the rollback, the build before it stays the previous one.
//   - The first build of a plugin, and a restart, have no probation: there is nothing to go back to.
//   - A session that a plugin refuses at a start fails its own requests only; an upgrade fails at it if the old
//     generation serves the session.
//   - An upgrade to the build that is committed already does not start a plugin that does not run.
//   - A wrapped server is held to answer pings only where its owner says so: many answer nothing while a tool runs.
//   - A call that was cancelled has left its place, although the plugin may still work on it: nothing says when it
//     stops.
//   - A crash in the probation goes back to the build before also if the new one is pinned: an upgrade that failed
//     must change nothing. The pin stays, and the next upgrade follows it.
//   - A profile that comes during an upgrade is shown the old build's lists until the new one has listed for it.
//   - Lists that a candidate says to have changed, after they were read, are read again behind the cutover: they have
//     been judged once.
//   - A candidate that serves only the other era of MCP is listed in that one, and compared with what the client was
//     shown: the gateway will translate.
//
// Lock order: Slot.mu before generation.lossMu and the locks of rpc.Conn. Slot.mu is held for assignments and for
// appends to a connection's memory (rpc.Conn.StartLater, SendLater), never across a write, a process start, or a
// call to Observer, Peer or Owner. rpc.Conn calls Retire, Serve and Idle without locks held.
package slot

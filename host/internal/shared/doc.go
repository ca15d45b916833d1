// Package shared connects a host to processes that are not its own: shared ones, which serve every host of a user that
// needs the same, and attached ones, which somebody else runs.
//
// # One process for all who need the same
//
// What makes two hosts need the same process is a [Key]: the home, the plugin, the bytes of its build, and the
// arguments and environment it gets. Equal keys lead to one socket, and the life lock of that socket (package
// plugin/socket) to one process behind it, however many hosts start at the same moment and whichever of them is killed
// when. [Ensure] dials, and starts the process only as the holder of the lock, which the process inherits:
//
//	dial ──answers──────────────────────────────────────────► already-live, or adopted-after-wait
//	 ▲ └─nobody─► lock ──free──► dial again ──nobody──► start ──answers──► spawned
//	 └──5..250 ms──┴─held                                └─ends, or is not there in time──► failed
//
// A lock that is held while nobody answers belongs to a process that is starting, ending, or hangs. It is waited for and
// then reported, and never taken away: what looks dead may be about to serve.
//
// Another build, another setting or a restart is another key, so the old process and the new one run side by side while
// hosts move over. Nobody tells the old one to end: it ends by itself when it has been without work for its idle time
// (sdk.DefaultSharedIdle, or "idle_retire" of the settings), whoever is connected.
//
// # What such a process is given
//
// A session of its own, the null device as stdin, the plugin's log file as stdout and stderr, and the lock as descriptor
// 3. It must not keep anything of the host that happened to start it: its environment is a part of the key, without the
// variables of a terminal or a login, and its working folder is the home. When that host ends, however it ends, the
// process goes on for the others.
//
// # What is not done here
//
// Nobody is signalled that anyone could be using. The one exception is a process that this host has just started and
// that has never accepted a connection: if it is not there in time it is killed, since it would hold the lock for ever.
package shared

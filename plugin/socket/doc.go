// Package socket keeps the Unix sockets of sox-host private, findable and served by one process at a time: socket paths, the check of the folders
// they lie in, the user at the other end, listening and dialling, and the lock that decides who may serve. The host, plugins that listen and the
// tests share it. It starts no goroutine and keeps no state outside the values it returns. Its API follows the module's version.
//
// # What is trusted
//
// Root, and the effective user. A socket is as private as its folder, so [Listen], [Dial], [Probe] and [TryLock] check the folder before they
// touch anything in it, and both ends of a connection ask the kernel who the other one is. A [*FolderError] is final: waiting does not help, a
// person has to act, and the message says how. Nothing in this package repairs a folder except [Tighten], which is called on purpose only.
//
// # What a failed connection means
//
// The results of [Probe] are less than they seem. [Absent]: nobody serves. [StaleOrStarting]: the server died, or is between bind and listen; only
// whoever holds the life lock may remove the socket. [Busy]: alive, its backlog is full; wait. [Live]: somebody holds the listening end, which
// is not to say that it answers: when a supervisor keeps the listening descriptor, a connection to a dead server succeeds and then hangs. A
// server that says nothing after the connection is reported, and its socket left alone.
//
// # The life lock
//
// One process serves a path because it holds [LockPath] of it: a flock(2) on a file that is never removed, taken by whoever starts the server and
// inherited by the server ([Lock.File], [AdoptLock]), who keeps it until it ends. The kernel frees it when the last of them is gone, however they
// go, and not before. Locks made of file content cannot do that. They were measured against each other: 200 processes race for one socket over a
// stale lock and a stale socket, each killing itself with probability 0.3 at every step, each server with 0.2, and an independent lock as the
// judge (Linux 6.18, 2 cores):
//
//	lock                                            rounds   two servers alive       racers that gave up
//	created exclusively, holds the pid                   5    2 (in 2 rounds)                        655
//	the same with the start time of the process          5   39 (in 4 rounds)                          0
//	the same, renamed aside and checked again            5   18 (in 5 rounds)                          1
//	flock held only while starting the server            5    4 (in 2 rounds)                          0
//	flock inherited and held for life                   30    0                                        0
//
// Such locks fail because two processes judge the same file stale and the second removes the first one's new lock; because the process that
// started a server dies before the server is ready; because a file can be empty; because a zombie counts as alive; and because start times come
// in ticks of 10 ms: a pid reused 2.4 ms after its owner's death had the same time in 150 of 200 cases. With flock none of this is asked: a
// recycled pid does not matter, because the pid is not looked at. The file does hold a record of who took it, for messages only.
//
// flock and not fcntl record locks, which are lost when any descriptor of the file is closed and are not inherited. On a network file system
// flock is something else, and what inheritance does there is not known: keep the folder on a local one.
//
// # Where it works
//
// Linux and macOS. Elsewhere functions that need the system return [ErrUnsupported].
package socket

import "errors"

// ErrUnsupported is what this package returns where there are no Unix sockets with peer credentials: on anything but Linux and macOS.
var ErrUnsupported = errors.New("private Unix sockets need Linux or macOS: this system has no peer credentials, folder modes and inherited locks to build them on")

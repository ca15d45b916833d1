// Package control is the private socket over which the command line talks to a running host: both ends.
//
// A host listens at run/DIGEST-PID.sock in its home, where DIGEST names the plugins folder, so that a command
// finds the hosts of a folder by looking into one private folder ([Discover]). Requests, answers and progress
// are frames of the plugin wire; methods belong to the host (host.status, host.upgrade). Only control.hello is
// answered here, by the reader itself, so that it works while every request slot is taken.
//
// # Choices where the words leave room
//
//   - A request lives as long as the host and not as long as the connection it came by: an upgrade does not
//     die with the command that asked for it. Only its progress and its answer are lost.
//   - A peer that does not read loses its connection, never the operation it asked for.
//   - The life lock of a socket (plugin/socket) is held by its host. Whoever holds that lock may remove the
//     socket and the lock file of a dead host; nobody else may. A host removes both itself when it ends.
//   - Two hosts can have one process id, in two containers on one home: the second takes PID-2.
//   - Where the folder's path is too long for a socket, the sockets are in socket.FallbackRoot, and DIGEST
//     covers the folder too.
//
// It works where plugin/socket does; elsewhere every function returns socket.ErrUnsupported.
package control

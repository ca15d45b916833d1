// Package plugin holds nothing itself: its folders are the contract between the host and its plugins, which
// both import and neither owns.
//
//	wire    protocol 1 as bytes: frames, lines, envelopes, ids, error codes, the ready frame
//	rpc     a connection with memory: every call ends exactly once; dialling again when the peer went away
//	schema  canonical JSON, the hash of a list, and what changed between two lists
//	socket  socket paths, private folders, the user at the other end, the lock of a socket
//
// PROTOCOL.md describes the protocol for authors in other languages. The tests here hold it against wire
// and rpc, byte for byte.
package plugin

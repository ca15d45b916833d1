// Package wire is protocol 1 as bytes: frames and lines, JSON-RPC envelopes, ids, error codes and the
// names of the handshake. It starts no goroutine, reads no clock, logs nothing and never decodes params
// or results; what it returns are spans of the bytes it was given.
//
// PROTOCOL.md in the parent folder describes the same for authors in other languages. The package is
// stable within protocol 1: members may be added to envelopes and handshake objects, none is renamed.
//
// Everything that reads (Decoder, FrameReader, LineReader, Scan) bounds what it keeps, validates syntax
// and UTF-8 before it returns a byte, and returns typed errors that name the reason.
package wire

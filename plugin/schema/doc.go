// Package schema compares what a plugin offers. It gives a list payload one
// canonical form and one hash, so that host and plugin agree without talking
// whether two lists are the same, and it explains the difference between two
// lists in terms of what a caller of the old one may meet in the new one.
//
// Everything here is pure: no clocks, no goroutines, no I/O. All functions are
// safe for concurrent use and never keep the bytes they are given.
//
// The canonical form is RFC 8785 (JSON Canonicalization Scheme): members sorted
// by UTF-16 code units, arrays in order, no white space, numbers as IEEE 754
// doubles. Integers beyond 2^53 that round to the same double are therefore the
// same, exactly as in a JavaScript implementation of the same hash.
//
// A difference is breaking when a call that was valid may now be refused, or a
// result that was promised may now look different. A difference the package
// cannot decide (a changed pattern, a changed "not") counts as breaking, because
// the cost of a false alarm is one flag and the cost of a missed one is a client
// that fails later. Text, annotations and new optional properties never break.
//
// The package is stable: the hash of a payload never changes between releases.
package schema

package wire

import (
	"bytes"
	"strconv"
)

// Ids are kept as the bytes they came in: 1, 1.0 and "1" are three ids, and 9007199254740993 keeps its
// digits. JSON-RPC 2.0 §4 allows strings and numbers; null, booleans, objects and arrays are refused.

// MaxIDBytes bounds a raw id: an id is held once per open request. 8 KiB is twice the longest seen in use.
const MaxIDBytes = 8 << 10

// ValidID reports whether raw, a valid JSON value, may identify a request.
func ValidID(raw []byte) bool {
	if len(raw) == 0 || len(raw) > MaxIDBytes {
		return false
	}
	c := raw[0]
	return c == '"' || c == '-' || '0' <= c && c <= '9'
}

// ParseUint returns the value of a minted id. Anything but the digits of a uint64 gives ok false.
func ParseUint(raw []byte) (n uint64, ok bool) {
	if len(raw) == 0 || len(raw) > 20 {
		return 0, false
	}
	for _, c := range raw {
		if c < '0' || c > '9' || n > (1<<64-1-9)/10 {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, true
}

// AppendUint appends the digits of n.
func AppendUint(dst []byte, n uint64) []byte { return strconv.AppendUint(dst, n, 10) }

// SalvageID looks for the top-level id of a line that cannot be read whole. head are its first bytes, tail
// its last; both may be the whole line. It returns nil when no id stands in the members that head still
// shows in full, nor as the very last member (where the TypeScript SDK writes it).
func SalvageID(head, tail []byte) []byte {
	s := scanner{data: head}
	var env Envelope
	if err := s.envelope(&env); err != nil && env.id.Present() && ValidID(env.ID()) {
		return bytes.Clone(env.ID())
	} else if err == nil && ValidID(env.ID()) {
		return bytes.Clone(env.ID())
	}
	// In valid JSON the last '}' of a line closes the top-level object, so `,"id":X}` at the very end is a
	// top-level member: a key that merely ends in id" would have a backslash before its quote.
	tail = bytes.TrimRight(tail, " \t\r\n")
	tail, found := bytes.CutSuffix(tail, []byte{'}'})
	if !found {
		return nil
	}
	for _, lead := range []string{`,"id":`, `{"id":`, `, "id": `, `{"id": `} {
		i := bytes.LastIndex(tail, []byte(lead))
		if i < 0 {
			continue
		}
		raw := bytes.TrimSpace(tail[i+len(lead):])
		v := scanner{data: raw}
		if v.value() == nil && v.pos == len(raw) && ValidID(raw) {
			return bytes.Clone(raw)
		}
	}
	return nil
}

package wire

import (
	"math"
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

// ParseUint returns the value of a minted id. Anything but the shortest digits of a uint64 gives ok false, so
// that no two spellings name one id.
func ParseUint(raw []byte) (n uint64, ok bool) {
	if len(raw) == 0 || len(raw) > 20 || raw[0] == '0' && len(raw) > 1 {
		return 0, false
	}
	for _, c := range raw {
		if c < '0' || c > '9' {
			return 0, false
		}
		next := n*10 + uint64(c-'0')
		if n > math.MaxUint64/10 || next < n {
			return 0, false
		}
		n = next
	}
	return n, true
}

// AppendUint appends the digits of n.
func AppendUint(dst []byte, n uint64) []byte { return strconv.AppendUint(dst, n, 10) }

package schema

import (
	"crypto/sha256"
	"encoding/hex"
)

// Hash returns the lower-case hex sha256 of the canonical form of raw: equal for
// any order of members and any white space, different for any other difference
// that survives RFC 8785. Errors are those of Canonical.
func Hash(raw []byte) (string, error) {
	canonical, err := Canonical(nil, raw)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:]), nil
}

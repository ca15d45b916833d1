package schema

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// Canonical appends the RFC 8785 form of the JSON value raw to dst and returns
// the extended slice. raw is not changed. Input that is not exactly one JSON
// value, has invalid UTF-8, a lone surrogate or a repeated member name is an
// error, and dst comes back unextended.
func Canonical(dst, raw []byte) ([]byte, error) {
	out := append(dst, raw...)
	value := jsontext.Value(out[len(dst):])
	if err := value.Canonicalize(); err != nil {
		return dst, fmt.Errorf("canonical JSON: %w", err)
	}
	return append(out[:len(dst)], value...), nil
}

package main

import (
	"fmt"
	"strconv"
	"strings"
)

// byteSize is a flag for a number of bytes: 65536, 64KiB, 16MiB, 9MB.
type byteSize int

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9},
	{"B", 1}, {"", 1},
}

// maxSize keeps a size an int everywhere.
const maxSize = 1<<31 - 1

// Set implements pflag.Value.
func (b *byteSize) Set(s string) error {
	for _, unit := range sizeUnits {
		digits, found := cutSuffixFold(s, unit.suffix)
		if !found {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n <= 0 {
			break
		}
		if n > maxSize/unit.bytes {
			return fmt.Errorf("%q is more than the largest size, 2GiB", s)
		}
		*b = byteSize(n * unit.bytes)
		return nil
	}
	return fmt.Errorf("%q is not a size: write a number of bytes such as 65536, 64KiB or 16MiB", s)
}

func cutSuffixFold(s, suffix string) (string, bool) {
	if len(s) < len(suffix) || !strings.EqualFold(s[len(s)-len(suffix):], suffix) {
		return s, false
	}
	return s[:len(s)-len(suffix)], true
}

// String implements pflag.Value; 0 is the default and shows as nothing.
func (b *byteSize) String() string {
	switch n := int64(*b); {
	case n == 0:
		return ""
	case n%(1<<20) == 0:
		return strconv.FormatInt(n>>20, 10) + "MiB"
	case n%(1<<10) == 0:
		return strconv.FormatInt(n>>10, 10) + "KiB"
	default:
		return strconv.FormatInt(n, 10)
	}
}

// Type implements pflag.Value.
func (b *byteSize) Type() string { return "size" }

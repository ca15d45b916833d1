package main

import "testing"

func TestByteSizes(t *testing.T) {
	for text, want := range map[string]byteSize{
		"65536": 65536, "64KiB": 65536, "64kib": 65536, "16MiB": 16 << 20, "1GiB": 1 << 30, "9MB": 9_000_000, "5 KB": 5000, "7B": 7,
	} {
		var got byteSize
		if err := got.Set(text); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
		var again byteSize
		if err := again.Set(got.String()); err != nil || again != got {
			t.Errorf("%q prints as %q, which reads as %d, %v", text, got.String(), again, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "KiB", "64K", "1.5MiB", "0x10", "2GiB", "9999999999999999999", "64KiB!"} {
		var got byteSize
		if err := got.Set(text); err == nil {
			t.Errorf("%q is taken as %d", text, got)
		}
	}
}

//go:build windows

package socket

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
)

func TestEverything_says_that_it_needs_another_system(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	ctx := context.Background()
	for name, err := range map[string]error{
		"Path":           second(Path(dir, "k")),
		"CheckFolder":    CheckFolder(dir),
		"EnsureFolder":   EnsureFolder(dir),
		"Tighten":        second(Tighten(dir)),
		"Probe":          second(Probe(ctx, path)),
		"Dial":           second(Dial(ctx, path)),
		"Listen":         second(Listen(path)),
		"ListenLocked":   second(ListenLocked(path, nil)),
		"FromDescriptor": second(FromDescriptor(3)),
		"TryLock":        second(TryLock(path)),
		"WaitLock":       second(WaitLock(ctx, path)),
		"AdoptLock":      second(AdoptLock(3, path)),
		"StartToken":     second(ProcessStartToken(1)),
	} {
		if !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v, want ErrUnsupported", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

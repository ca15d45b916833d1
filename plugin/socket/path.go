package socket

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

const (
	// linuxPathBytes is the longest path that bind(2) takes on Linux: 108 bytes of sun_path less the closing NUL, which
	// Go always writes.
	linuxPathBytes = 107

	// darwinPathBytes is the same for macOS, whose sun_path has 104 bytes. Systems we do not know get this smaller
	// budget too.
	darwinPathBytes = 103

	// digestChars tell keys apart: 64 bits, so that a collision among the few sockets of one user does not happen by
	// itself. Only that user could bring one about, with nothing to gain: all of these sockets are the user's own.
	digestChars = 16
)

// ErrPathTooLong reports a socket path that this system cannot bind or dial; the text gives the length and the limit.
var ErrPathTooLong = errors.New("socket path is too long")

// MaxPathBytes is the longest socket path this system can bind: 107 bytes on Linux, 103 on macOS.
func MaxPathBytes() int {
	if runtime.GOOS == "linux" {
		return linuxPathBytes
	}
	return darwinPathBytes
}

// FallbackRoot is the folder that holds the sockets of a user whose own socket folder is too long to bind in. It is
// fixed on purpose: a client may strip TMPDIR and XDG_RUNTIME_DIR from a host's environment, and the user's shell must
// find the same sockets. It has to have mode 0700 exactly.
func FallbackRoot(uid int) string {
	return "/tmp/sox-" + strconv.Itoa(uid)
}

// Path derives the socket path of a key in a socket folder, the first of these that fits [MaxPathBytes]:
//
//	DIR/proxy-KEY-DIGEST.sock
//	DIR/proxy-DIGEST.sock
//	/tmp/sox-UID/p-DIGEST.sock
//
// DIR must be absolute. KEY may hold any bytes but not be empty: what is not a letter, digit, dot, dash or underscore
// is shown as an underscore, and the digest is taken from the key as given. In the third form the digest also covers
// DIR, because that folder is shared by all of the user's socket folders. The result depends on dir, key, the effective
// user and the operating system, on nothing else; no file is looked at.
func Path(dir, key string) (string, error) {
	uid := os.Geteuid()
	if uid < 0 {
		return "", fmt.Errorf("derive socket path: %w", ErrUnsupported)
	}
	return pathWithin(dir, key, uid, MaxPathBytes())
}

func pathWithin(dir, key string, uid, limit int) (string, error) {
	if !filepath.IsAbs(dir) || strings.ContainsRune(dir, 0) {
		return "", fmt.Errorf("derive socket path: folder %q is not an absolute path", dir)
	}
	if key == "" {
		return "", errors.New("derive socket path: empty key")
	}
	dir = filepath.Clean(dir)
	digest := digestOf(key)
	for _, name := range []string{
		"proxy-" + displayKey(key) + "-" + digest + ".sock",
		"proxy-" + digest + ".sock",
	} {
		if path := filepath.Join(dir, name); len(path) <= limit {
			return path, nil
		}
	}
	return filepath.Join(FallbackRoot(uid), "p-"+digestOf(dir+"\x00"+key)+".sock"), nil
}

// digestOf is FNV-1a. A cryptographic hash would be no better here, and linking one lengthens the start of every
// plugin.
func digestOf(s string) string {
	sum := fnv.New64a()
	_, _ = io.WriteString(sum, s) // a hash takes everything
	return fmt.Sprintf("%0*x", digestChars, sum.Sum64())
}

// displayKey is the readable part of a socket's name. It tells nothing apart, the digest does.
func displayKey(key string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-', r == '_':
			return r
		}
		return '_'
	}, key)
}

// validPath refuses a path that the system would read as something else: relative, abstract (a leading "@" in Go), or
// cut at a NUL.
func validPath(path string) error {
	if os.Geteuid() < 0 {
		return ErrUnsupported
	}
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return fmt.Errorf("socket %q: not an absolute path", path)
	}
	if limit := MaxPathBytes(); len(path) > limit {
		return fmt.Errorf("socket %q: %w: %d bytes, this system takes %d", path, ErrPathTooLong, len(path), limit)
	}
	return nil
}

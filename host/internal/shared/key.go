package shared

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"

	"github.com/sox-host/sox-host/host/internal/control"
	"github.com/sox-host/sox-host/plugin/socket"
)

// Key names one shared process: hosts with equal keys use the same. The slices are not changed.
type Key struct {
	Home    string // absolute
	Plugin  string
	Version string // of the build, for people
	SHA256  string // of the build
	Args    []string
	Env     []string // everything the process gets, but for where it listens
	// Instance tells a process from one of the same build that a restart has replaced; "" before the first restart.
	Instance string
}

// String is a text that only equal keys have: the plugin and its version, and a digest of everything.
func (k Key) String() string {
	sum := sha256.New()
	write := func(texts ...string) { // with lengths, so that no two lists give the same bytes
		_ = binary.Write(sum, binary.BigEndian, uint64(len(texts))) // a hash takes everything
		for _, text := range texts {
			_ = binary.Write(sum, binary.BigEndian, uint64(len(text)))
			sum.Write([]byte(text))
		}
	}
	write(k.Home, k.Plugin, k.Version, k.SHA256, k.Instance)
	write(k.Args...)
	write(k.Env...)
	return k.Plugin + "-" + k.Version + "-" + hex.EncodeToString(sum.Sum(nil)[:8])
}

// Socket is where the process listens: in the home's run folder, or in the user's folder below /tmp if that path would
// be too long for a socket.
func (k Key) Socket() (string, error) {
	return socket.Path(control.RunFolder(k.Home), k.String())
}

// ofShared reports whether a file's name is one that Socket makes.
func ofShared(name string) bool {
	return strings.HasSuffix(name, ".sock") && (strings.HasPrefix(name, "proxy-") || strings.HasPrefix(name, "p-"))
}

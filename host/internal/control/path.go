package control

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sox-host/sox-host/plugin/socket"
)

const (
	// digestChars of sha256 tell the plugins folders of one user apart: 48 bits for a handful of folders.
	digestChars = 12

	// maxSameName bounds the hosts with one process id on one home, each in a container of its own. The
	// suffix stays within the room that roomFor leaves.
	maxSameName = 99

	socketSuffix = ".sock"
)

// splitName takes a name apart that Path makes, which may have the suffix of a second host of the same process id.
// Other names are not ok.
func splitName(name string) (digest, pid string, ok bool) {
	bare, isSocket := strings.CutSuffix(name, socketSuffix)
	digest, rest, _ := strings.Cut(bare, "-")
	pid, number, numbered := strings.Cut(rest, "-")
	ok = isSocket && consistsOf(hexDigits, digest, digestChars, digestChars) && consistsOf(decimals, pid, 1, 10) &&
		(!numbered || consistsOf(decimals, number, 1, 2))
	return digest, pid, ok
}

const (
	decimals  = "0123456789"
	hexDigits = decimals + "abcdef"
)

// consistsOf reports whether s has from least to most characters, all of them among chars.
func consistsOf(chars, s string, least, most int) bool {
	return least <= len(s) && len(s) <= most && strings.Trim(s, chars) == ""
}

// RunFolder is the folder of the control sockets of a home.
func RunFolder(home string) string { return filepath.Join(home, "run") }

// Path is where the host with a process id listens for commands about a plugins folder. It depends on its
// arguments, the user and the operating system; links in pluginsDir are followed, so that every spelling of a
// folder gives one path. home must be absolute.
func Path(home, pluginsDir string, pid int) (string, error) {
	p, err := placeOf(home, pluginsDir)
	if err != nil {
		return "", err
	}
	return p.path(pid, 1), nil
}

// place is where the sockets of one plugins folder are, and how their names begin.
type place struct {
	dir    string
	digest string
}

func (p place) path(pid, number int) string {
	name := p.digest + "-" + strconv.Itoa(pid)
	if number > 1 {
		name += "-" + strconv.Itoa(number)
	}
	return filepath.Join(p.dir, name+socketSuffix)
}

func placeOf(home, pluginsDir string) (place, error) {
	uid := os.Geteuid()
	if uid < 0 {
		return place{}, fmt.Errorf("control socket: %w", socket.ErrUnsupported)
	}
	if !filepath.IsAbs(home) {
		return place{}, fmt.Errorf("control socket: home %q is not an absolute path", home)
	}
	folder, err := realFolder(pluginsDir)
	if err != nil {
		return place{}, fmt.Errorf("control socket: plugins folder %q: %w", pluginsDir, err)
	}
	return placeWithin(RunFolder(filepath.Clean(home)), folder, uid, socket.MaxPathBytes()), nil
}

// placeWithin decides by the longest name that a host can need, so that all hosts of a folder are in one place
// whatever their process ids.
func placeWithin(run, pluginsDir string, uid, limit int) place {
	p := place{dir: run, digest: digestOf(pluginsDir)}
	if len(p.path(1<<31-1, maxSameName)) <= limit {
		return p
	}
	return place{dir: socket.FallbackRoot(uid), digest: digestOf(run + "\x00" + pluginsDir)}
}

// realFolder gives every spelling of a folder one name. A folder that does not exist yet keeps its own.
func realFolder(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if found, err := filepath.EvalSymlinks(dir); err == nil {
		return found, nil
	}
	return dir, nil
}

func digestOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])[:digestChars]
}

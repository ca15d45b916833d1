package integration

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

// status is the part of `sox-host status --json` that tests look at.
type status struct {
	Hosts []struct {
		PID    int `json:"pid"`
		Status struct {
			PID     int            `json:"pid"`
			Plugins []pluginStatus `json:"plugins"`
		} `json:"status"`
	} `json:"hosts"`
}

// pluginStatus is one plugin of it.
type pluginStatus struct {
	Plugin       string            `json:"plugin"`
	State        string            `json:"state"`
	Version      string            `json:"version"`
	Generation   uint64            `json:"generation"`
	PID          int               `json:"pid"`
	Operation    string            `json:"operation"`
	Problems     []string          `json:"problems"`
	LastExit     string            `json:"last_exit"`
	LastRollback string            `json:"last_rollback"`
	Counters     map[string]uint64 `json:"counters"`
}

// statusOf asks the running host about a plugin; the zero status if it does not know it.
func statusOf(t *testing.T, p *rig.Place, plugin string) pluginStatus {
	t.Helper()
	s, out := rig.JSON[status](p, "status")
	if len(s.Hosts) != 1 {
		t.Fatalf("status shows %d hosts:\n%s", len(s.Hosts), out)
	}
	for _, ps := range s.Hosts[0].Status.Plugins {
		if ps.Plugin == plugin {
			return ps
		}
	}
	return pluginStatus{}
}

// expectWholeState looks at everything that sox-host keeps: state files are whole, staged files are what their folder says, nothing is half-way.
func expectWholeState(t *testing.T, p *rig.Place) {
	t.Helper()
	home := filepath.Join(p.Home, ".sox")
	walk(t, filepath.Join(home, "state"), func(path string, raw []byte) {
		if filepath.Ext(path) == ".json" && !json.Valid(raw) {
			t.Errorf("%s is torn: %q", path, raw)
		}
	})
	walk(t, filepath.Join(home, "store"), func(path string, raw []byte) {
		sum := sha256.Sum256(raw)
		if filepath.Base(path) == ".lock" {
			return
		}
		if folder := filepath.Base(filepath.Dir(path)); folder != hex.EncodeToString(sum[:]) {
			t.Errorf("%s has bytes of the digest %x", path, sum)
		}
	})
}

// treeHash is a digest of every name and byte under sox-host's folder, but for sockets, locks and what a running host
// writes by itself.
func treeHash(t *testing.T, p *rig.Place) string {
	t.Helper()
	sum := sha256.New()
	walk(t, filepath.Join(p.Home, ".sox"), func(path string, raw []byte) {
		switch filepath.Ext(path) {
		case ".lock", ".log", ".warm": // the last is written by the host, some seconds after its start
			return
		}
		if strings.HasPrefix(path, filepath.Join(p.Home, ".sox", "run")) {
			return
		}
		fmt.Fprintf(sum, "%s %x\n", path, sha256.Sum256(raw))
	})
	return hex.EncodeToString(sum.Sum(nil))
}

// walk visits the regular files under a folder, in a fixed order.
func walk(t *testing.T, root string, visit func(path string, raw []byte)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		if err == nil {
			visit(path, raw)
		}
		return err
	})
	if err != nil {
		t.Errorf("walk %s: %v", root, err)
	}
}

// overwriteInPlace copies bytes into an existing file, as cp does. A program that is being executed cannot be written that way: the kernel refuses,
// which is as good.
func overwriteInPlace(t *testing.T, src, dst string) {
	t.Helper()
	raw, err := os.ReadFile(src)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dst, raw, 0o700); err != nil {
		t.Fatal(err)
	}
}

// chmod changes a mode.
func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// overlay is the settings of a kit whose stamp is changed at each start by what its file says.
func overlay(p *rig.Place, name string) {
	p.Settings(name, map[string]any{"env": map[string]string{stamp.EnvFile: p.Path(name + ".overlay")}})
}

// setOverlay writes that file.
func setOverlay(t *testing.T, p *rig.Place, name string, o stamp.Options) {
	t.Helper()
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	p.Write(name+".overlay", string(raw))
}

// rawJSON is JSON that stays as it is.
func rawJSON(text string) json.RawMessage { return json.RawMessage(text) }

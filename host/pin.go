package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sox-host/sox-host/host/internal/store"
)

var (
	// ErrUnknownPlugin: the plugins folder has no file of that name, and no state remembers one.
	ErrUnknownPlugin = errors.New("no such plugin")

	// ErrUsage: what was asked for makes no sense, whatever lies on disk.
	ErrUsage = errors.New("wrong arguments")
)

// PinPlugin keeps a plugin at one version, and at exactly one build if digest, the sha256 of the file in hex, is
// not empty. The empty version pins what is active. The version must be in the plugins folder or be active or
// previous; its bytes are compared with the digest. What runs stays until the next upgrade or start.
func PinPlugin(ctx context.Context, home, pluginsDir, name, version, digest string) (Pin, error) {
	if digest != "" && !isDigest(digest) {
		return Pin{}, fmt.Errorf("%q: %w: sha256 %q is not 64 hexadecimal digits", name, ErrUsage, digest)
	}
	p, err := openPlugin(home, pluginsDir, name)
	if err != nil {
		return Pin{}, err
	}
	pin := Pin{Version: p.state.Active.Version, SHA256: strings.ToLower(digest)}
	if version != "" {
		if pin.Version, err = store.ParseVersion(version); err != nil {
			return Pin{}, fmt.Errorf("%q: %w: %w", name, ErrUsage, err)
		}
	}
	if pin.Version.IsZero() {
		return Pin{}, fmt.Errorf("%q: %w: none is active yet: name the version to pin", name, store.ErrNoSuchVersion)
	}
	if err := p.checkPin(pin); err != nil {
		return Pin{}, about(name, err)
	}
	_, err = p.states.Update(ctx, name, func(s *store.PluginState) error {
		s.Pin = &pin
		s.History = append(s.History, store.Event{Time: time.Now().UTC(), Action: "pin", To: store.Ref(pin)})
		return nil
	})
	return pin, err
}

// UnpinPlugin lifts a pin and returns it; nil means that there was none.
func UnpinPlugin(ctx context.Context, home, pluginsDir, name string) (*Pin, error) {
	p, err := openPlugin(home, pluginsDir, name)
	if err != nil {
		return nil, err
	}
	if p.state.Pin == nil {
		return nil, nil
	}
	var pin *Pin
	_, err = p.states.Update(ctx, name, func(s *store.PluginState) error {
		if pin = s.Pin; pin == nil {
			return nil // lifted in between
		}
		s.Pin = nil
		s.History = append(s.History, store.Event{Time: time.Now().UTC(), Action: "unpin", From: store.Ref(*pin)})
		return nil
	})
	return pin, err
}

// about names the plugin that an error is about. These two do so themselves.
func about(name string, err error) error {
	if errors.Is(err, ErrUnknownPlugin) || errors.Is(err, store.ErrBusy) {
		return err
	}
	return fmt.Errorf("%q: %w", name, err)
}

// isDigest says whether s is a sha256 in hex.
func isDigest(s string) bool {
	raw, err := hex.DecodeString(s)
	return err == nil && len(raw) == sha256.Size
}

// plugin is one plugin on disk, for a command about it.
type plugin struct {
	home   *store.Home
	states *store.State
	state  store.PluginState
	name   string
	files  []PluginFile
}

func openPlugin(home, pluginsDir, name string) (plugin, error) {
	p := plugin{name: name}
	if !store.ValidName(name) {
		return p, fmt.Errorf("plugin %q: %w: a name starts with a letter a-z and has at most 32 characters a-z, 0-9 and -", name, ErrUsage)
	}
	var err error
	if p.home, err = store.OpenHome(home); err != nil {
		return p, err
	}
	if p.states, err = p.home.State(pluginsDir); err != nil {
		return p, err
	}
	if p.state, err = p.states.Load(name); err != nil {
		return p, err
	}
	listing, missing, err := scanFolder(p.home, pluginsDir)
	if err != nil {
		return p, err
	}
	p.files = listing.Of(name)
	if len(p.files) == 0 && p.state.Active.IsZero() {
		return p, unknownPlugin(name, pluginsDir, missing)
	}
	return p, nil
}

// checkPin refuses a pin that could never be met.
func (p plugin) checkPin(pin Pin) error {
	for _, ref := range []store.Ref{p.state.Active, p.state.Previous} {
		if ref.Version == pin.Version && (pin.SHA256 == "" || ref.SHA256 == pin.SHA256) {
			return nil
		}
	}
	_, err := store.Choose(p.files, store.Choice{Pin: &pin})
	return err
}

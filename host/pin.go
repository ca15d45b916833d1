package host

import (
	"context"
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
// previous; its bytes are compared with the digest. What runs stays until the next upgrade or start. An upgrade that
// is under way stops before it commits another version; one that has committed it stands.
func PinPlugin(ctx context.Context, home, pluginsDir, name, version, digest string) (Pin, error) {
	if digest != "" && !store.IsDigest(digest) {
		return Pin{}, fmt.Errorf("%q: %w: sha256 %q is not 64 hexadecimal digits", name, ErrUsage, digest)
	}
	p, err := openPlugin(home, pluginsDir, name)
	if err != nil {
		return Pin{}, err
	}
	var pin Pin
	_, err = p.states.Update(ctx, name, func(s *store.PluginState) error {
		p.state = *s // what is active may have changed since it was read
		var err error
		if pin, err = p.newPin(version, strings.ToLower(digest)); err != nil {
			return err
		}
		s.Pin = &pin
		s.History = append(s.History, store.Event{Time: time.Now().UTC(), Action: "pin", To: store.Ref(pin)})
		return nil
	})
	if err != nil {
		return Pin{}, err
	}
	return pin, nil
}

// newPin is the pin to a version, or to what is active.
func (p plugin) newPin(version, digest string) (Pin, error) {
	pin := Pin{Version: p.state.Active.Version, SHA256: digest}
	if version != "" {
		var err error
		if pin.Version, err = store.ParseVersion(version); err != nil {
			return Pin{}, fmt.Errorf("%q: %w: %w", p.name, ErrUsage, err)
		}
	}
	if pin.Version.IsZero() {
		return Pin{}, fmt.Errorf("%q: %w: none is active yet: name the version to pin, as in sox-host pin %s VERSION; %s", p.name, store.ErrNoSuchVersion, p.name, p.available())
	}
	if err := p.checkPin(pin); err != nil {
		return Pin{}, about(p.name, err)
	}
	return pin, nil
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

// about names the plugin that an error is about. These do so themselves.
func about(name string, err error) error {
	var choice *store.ChoiceError
	if errors.Is(err, ErrUnknownPlugin) || errors.Is(err, store.ErrBusy) || errors.As(err, &choice) && choice.Plugin != "" {
		return err
	}
	return fmt.Errorf("%q: %w", name, err)
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
	err := checkName(name)
	if err != nil {
		return p, err
	}
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

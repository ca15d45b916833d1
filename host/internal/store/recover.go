package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Recover replaces a damaged state and returns the new one. It falls back to the
// previous commit if that one's build is whole in the store, else to the newest
// whole build there; the damaged file is kept as NAME.json.damaged. A state that
// is fine is returned unchanged, one that merely cannot be read is an error.
//
// The new generation is above every one that the lost file can have named: the
// backup is one commit old, so two above it, or one above the number that can
// still be read in the damaged file.
func (s *State) Recover(ctx context.Context, name string) (PluginState, error) {
	unlock, err := s.lockFile(ctx, name)
	if err != nil {
		return PluginState{}, err
	}
	defer unlock()
	present, err := s.Load(name)
	var stateErr *StateError
	if err == nil || !errors.As(err, &stateErr) || !stateErr.Corrupt {
		return present, err
	}
	recovered, err := s.fallback(name)
	if err != nil {
		return PluginState{}, err
	}
	recovered.Generation = max(recovered.Generation+2, s.salvageGeneration(name)+1)
	recovered.History = last(append(recovered.History, Event{
		Time: time.Now().UTC(), Action: "recover", To: recovered.Active, Note: stateErr.Err.Error(),
	}), maxHistory)
	if err := s.keepAs(name, s.file(name)+".damaged"); err != nil {
		return PluginState{}, s.wrap(name, err)
	}
	// The damaged file stays in place until the new one replaces it: a missing
	// file would mean a plugin never seen. It must not become the backup.
	return recovered, s.replace(name, recovered)
}

// fallback returns the state to go on with; its generation is not yet raised.
func (s *State) fallback(name string) (PluginState, error) {
	p, err := readState(s.backup(name))
	if err != nil {
		p = PluginState{} // no backup, or damaged as well: the store decides
	}
	for _, ref := range []Ref{p.Active, p.Previous} {
		if ref.IsZero() {
			continue
		}
		if _, err := s.home.Lookup(name, ref); err == nil {
			if ref != p.Active {
				p.Active, p.Previous = ref, Ref{}
			}
			return p, nil
		}
	}
	builds, err := s.home.Staged(name)
	if err != nil {
		return PluginState{}, fmt.Errorf("recover state of %s: %w", name, err)
	}
	p.Active, p.Previous = Ref{}, Ref{}
	if len(builds) > 0 {
		p.Active = builds[0].Ref()
	}
	return p, nil
}

// salvageGeneration reads the number from a file whose checksum is wrong.
func (s *State) salvageGeneration(name string) uint64 {
	data, err := readBounded(s.file(name), maxStateBytes)
	if err != nil {
		return 0
	}
	var file stateFile
	var p struct {
		Generation uint64 `json:"generation"`
	}
	if json.Unmarshal(data, &file) != nil || json.Unmarshal(file.State, &p) != nil {
		return 0
	}
	return p.Generation
}

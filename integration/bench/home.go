//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// plugin is what is dropped into a plugins folder under a name.
type plugin struct {
	program  string   // a binary that is copied
	wrapped  []string // or the command of an MCP server, for a manifest
	version  string   // "" is 1.0.0
	settings any      // NAME.json, nil for none
}

// home makes a home with plugins, by name.
func (p *programs) home(plugins map[string]plugin) (dir string, err error) {
	if dir, err = os.MkdirTemp(p.dir, "h"); err != nil {
		return "", err
	}
	if err := os.Mkdir(filepath.Join(dir, "plugins"), 0o700); err != nil {
		return "", err
	}
	for name, pl := range plugins {
		if err := pl.drop(dir, name); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// drop puts a plugin into the folder of a home.
func (pl plugin) drop(home, name string) error {
	version := pl.version
	if version == "" {
		version = "1.0.0"
	}
	file := filepath.Join(home, "plugins", name+"_v"+version)
	if pl.settings != nil {
		text, err := json.Marshal(pl.settings)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(home, "plugins", name+".json"), text, 0o600); err != nil {
			return err
		}
	}
	if pl.wrapped != nil {
		text, err := json.Marshal(map[string]any{"command": pl.wrapped[0], "args": pl.wrapped[1:]})
		if err != nil {
			return err
		}
		return writeOld(file+".json", text, 0o600)
	}
	body, err := os.ReadFile(pl.program)
	if err != nil {
		return err
	}
	// The name behind the end of the program makes each plugin a build of its own, as it is in a real folder.
	return writeOld(file, append(body, name...), 0o700)
}

// writeOld writes a file with a modification time in the past. One that has just been written might still be being
// copied: sox-host would wait for it to settle.
func writeOld(path string, body []byte, mode os.FileMode) error {
	old := time.Now().Add(-time.Hour)
	return errors.Join(os.WriteFile(path, body, mode), os.Chtimes(path, old, old))
}

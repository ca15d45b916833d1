package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
)

// configFile is read from the root of the vault, if it is there.
const configFile = ".notes.json"

// Config is what a request works with. Each request reads its own at its beginning and keeps it to its end: a change counts from the next request
// on, never in the middle of one, and nothing of it is remembered between requests.
type Config struct {
	Exclude []string `json:"exclude"` // path.Match patterns of notes that nobody gets to see, "private/*"
	Limit   int      `json:"limit"`   // search results when the caller names no number; 0 means defaultLimit
}

// defaultLimit of search results: what a model reads without losing the thread.
const defaultLimit = 10

// readConfig reads the vault's configuration. A vault without the file has the defaults; a broken file is an error of the request, so that a typing
// mistake in "exclude" never publishes what it was meant to hide.
func readConfig(vault fs.FS) (Config, error) {
	c := Config{Limit: defaultLimit}
	raw, err := fs.ReadFile(vault, configFile)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("read %s: %w", configFile, err)
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return c, fmt.Errorf("read %s: %w", configFile, err)
	}
	for _, pattern := range c.Exclude {
		if _, err := path.Match(pattern, ""); err != nil {
			return c, fmt.Errorf("read %s: exclude %q: %w", configFile, pattern, err)
		}
	}
	if c.Limit <= 0 {
		c.Limit = defaultLimit
	}
	return c, nil
}

// hides reports whether the configuration keeps a note from view.
func (c Config) hides(note string) bool {
	for _, pattern := range c.Exclude {
		if ok, err := path.Match(pattern, note); ok && err == nil {
			return true
		}
	}
	return false
}

package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// ManifestSpec is how to run a server that is not a single file of ours, or to
// reach one that runs elsewhere. Paths are as written in the manifest; launch
// with Resolved.
type ManifestSpec struct {
	// Command is a path, or a bare name that is looked up on PATH. It is never
	// split and never passed to a shell.
	Command  string            `json:"command"`
	Args     []string          `json:"args"`
	Env      map[string]string `json:"env"`
	EnvAllow []string          `json:"env_allow"`
	Cwd      string            `json:"cwd"` // "" = the launcher's choice

	RemoteSpec // in place of Command, Args and Cwd
}

// Resolved returns a copy that a launcher can start as it is: Command, if it has
// a separator, and Cwd are absolute; relative ones start at the plugins folder. A
// bare command stays for PATH. A server behind a url has become the command that
// stands for it, see RemoteSpec.
func (m ManifestSpec) Resolved(pluginsDir string) ManifestSpec {
	absolute := func(path string) string {
		if filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(pluginsDir, path)
	}
	if m.URL != "" {
		return m.standIn(absolute)
	}
	if strings.ContainsRune(filepath.ToSlash(m.Command), '/') {
		m.Command = absolute(m.Command)
	}
	if m.Cwd != "" {
		m.Cwd = absolute(m.Cwd)
	}
	m.Args, m.EnvAllow, m.Env = slices.Clone(m.Args), slices.Clone(m.EnvAllow), maps.Clone(m.Env)
	return m
}

// decodeManifest reads a manifest strictly.
func decodeManifest(r io.Reader) (ManifestSpec, error) {
	var m ManifestSpec
	if err := decodeStrict(r, &m); err != nil {
		return ManifestSpec{}, err
	}
	if err := m.checkRemote(); err != nil {
		return ManifestSpec{}, err
	}
	if m.URL == "" && (m.Command == "" || strings.Contains(m.Command, "\x00")) {
		return ManifestSpec{}, errors.New(`"command" is missing: name the program to run, or the "url" of a remote server`)
	}
	if err := checkArgs(m.Args); err != nil {
		return ManifestSpec{}, err
	}
	return m, checkEnvironment(m.Env, m.EnvAllow)
}

func parseManifest(data []byte) (*ManifestSpec, error) {
	m, err := decodeManifest(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return &m, nil
}

// judgeManifest decodes a manifest and looks for what it names.
func (f *File) judgeManifest(r io.Reader) error {
	m, err := decodeManifest(r)
	if err != nil {
		return refuse(BadManifest, "%v", err)
	}
	if f.URL = m.ShownURL(); f.URL != "" {
		if _, err := FindRemote(); err != nil {
			return refuse(NoCommand, "%v", err)
		}
		return nil
	}
	m = m.Resolved(filepath.Dir(f.Path))
	if _, err := exec.LookPath(m.Command); err != nil {
		where := "not on PATH: install it or write its full path"
		if filepath.IsAbs(m.Command) {
			where = fmt.Sprintf("%v: correct the path or make it executable", cause(errors.Unwrap(err)))
		}
		return refuse(NoCommand, "command %q: %s", clip(m.Command), where)
	}
	if m.Cwd == "" {
		return nil
	}
	if info, err := os.Stat(m.Cwd); err != nil || !info.IsDir() {
		return refuse(BadManifest, `"cwd" %s is not a folder`, m.Cwd)
	}
	return nil
}

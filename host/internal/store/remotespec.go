package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sox-host/sox-host/plugin/wire"
)

// RemoteSpec is a server that runs elsewhere. The program sox-remote stands for
// it: a server on stdin and stdout like any other, which speaks HTTP on the other
// side, so that the host itself needs no HTTP. In URL and in the values of
// Headers, "${NAME}" stands for a variable of its environment. What could be
// secret travels in that environment and never in a command line, which every
// user can list.
type RemoteSpec struct {
	URL         string            `json:"url"`
	Transport   string            `json:"transport"` // wire.RemoteHTTP, also "", or wire.RemoteSSE
	Headers     map[string]string `json:"headers"`
	HeadersFile string            `json:"headers_file"` // more headers, in a file for the user alone
}

// RemoteCommand is the program that stands for a remote server.
const RemoteCommand = "sox-remote"

// proxyVariables are what sox-remote gets of the host's environment besides what
// every plugin gets: which proxy leads to the network.
var proxyVariables = []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"}

// FindRemote returns the absolute path of sox-remote: beside this program, as both
// are installed together, else on PATH. The error says what to install.
func FindRemote() (string, error) {
	var beside string
	if self, err := os.Executable(); err == nil {
		beside = filepath.Dir(self)
		real, err := filepath.EvalSymlinks(self)
		if err != nil {
			real = self
		}
		for _, dir := range []string{beside, filepath.Dir(real)} {
			if path, err := exec.LookPath(filepath.Join(dir, RemoteCommand)); err == nil {
				return path, nil
			}
		}
	}
	if path, err := exec.LookPath(RemoteCommand); err == nil && filepath.IsAbs(path) {
		return path, nil
	}
	return "", fmt.Errorf("a server behind a url needs the program %s, which is neither beside sox-host (in %s) nor on PATH: it is built together with sox-host, install it there",
		RemoteCommand, beside)
}

// standIn returns the manifest of the command that stands for the remote server.
func (m ManifestSpec) standIn(absolute func(string) string) ManifestSpec {
	path, err := FindRemote()
	if err != nil {
		path = RemoteCommand // whoever launches it finds the same and says so
	}
	env := map[string]string{wire.EnvRemoteURL: m.URL}
	if m.Transport != "" {
		env[wire.EnvRemoteTransport] = m.Transport
	}
	if len(m.Headers) > 0 {
		raw, _ := json.Marshal(m.Headers) // texts always marshal
		env[wire.EnvRemoteHeaders] = string(raw)
	}
	if m.HeadersFile != "" {
		env[wire.EnvRemoteHeadersFile] = absolute(m.HeadersFile)
	}
	maps.Copy(env, m.Env)
	return ManifestSpec{Command: path, Env: env, EnvAllow: slices.Concat(m.EnvAllow, proxyVariables)}
}

// checkRemote refuses what sox-remote could not use. What variables stand for is
// known only when it starts, and is checked there.
func (m ManifestSpec) checkRemote() error {
	if m.URL == "" {
		if m.Transport != "" || m.Headers != nil || m.HeadersFile != "" {
			return errors.New(`"transport", "headers" and "headers_file" are of a remote server, whose "url" is missing`)
		}
		return nil
	}
	if m.Command != "" || m.Args != nil || m.Cwd != "" {
		return errors.New(`it has a "url" and also "command", "args" or "cwd": a server either runs here or is reached by its url`)
	}
	parts := SplitURL(m.URL)
	switch {
	case strings.ContainsAny(m.URL, "\x00\n\r\t "):
		return errors.New(`"url" has a space, a line end or a NUL character in it`)
	case strings.HasPrefix(m.URL, "${"): // all of it may be in a variable
	case parts.Scheme != "http" && parts.Scheme != "https":
		return errors.New(`"url" has to begin with https:// or http://`)
	case parts.Host == "":
		return errors.New(`"url" names no host`)
	}
	switch m.Transport {
	case "", wire.RemoteHTTP, wire.RemoteSSE:
	default:
		return fmt.Errorf(`"transport" is %q: write %q or %q`, clip(m.Transport), wire.RemoteHTTP, wire.RemoteSSE)
	}
	for name, value := range m.Headers {
		if err := wire.CheckRemoteHeader(name, value); err != nil {
			return fmt.Errorf(`"headers": %w`, err)
		}
	}
	if strings.Contains(m.HeadersFile, "\x00") {
		return errors.New(`"headers_file" has a NUL character in it`)
	}
	return nil
}

// URLParts are the parts of a url (RFC 3986 §3) without what separates them. A url
// whose secrets are variables is no valid url yet, so package net/url refuses it.
type URLParts struct{ Scheme, User, Host, Path, Query, Fragment string }

// SplitURL takes any text apart.
func SplitURL(text string) (u URLParts) {
	text, u.Fragment, _ = strings.Cut(text, "#")
	text, u.Query, _ = strings.Cut(text, "?")
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		u.Path = text
		return u
	}
	u.Scheme, u.Host = strings.ToLower(scheme), rest
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		u.Host, u.Path = rest[:i], rest[i:]
	}
	if i := strings.LastIndexByte(u.Host, '@'); i >= 0 {
		u.User, u.Host = u.Host[:i], u.Host[i+1:]
	}
	return u
}

// String puts the parts together again.
func (u URLParts) String() string {
	var b strings.Builder
	if u.Scheme != "" {
		b.WriteString(u.Scheme + "://")
	}
	if u.User != "" {
		b.WriteString(u.User + "@")
	}
	b.WriteString(u.Host + u.Path)
	if u.Query != "" {
		b.WriteString("?" + u.Query)
	}
	if u.Fragment != "" {
		b.WriteString("#" + u.Fragment)
	}
	return b.String()
}

// isReference reports whether a text is nothing but a variable.
func isReference(text string) bool {
	name, begins := strings.CutPrefix(text, "${")
	name, ends := strings.CutSuffix(name, "}")
	return begins && ends && !strings.ContainsAny(name, "{}")
}

// ShownURL returns URL as it may be shown: user and password and the values of the
// query are three stars, unless they are variables. "" when there is none.
func (r RemoteSpec) ShownURL() string {
	if r.URL == "" {
		return ""
	}
	u := SplitURL(r.URL)
	if u.User != "" && !isReference(u.User) {
		u.User = "***"
	}
	if u.Query != "" && !isReference(u.Query) {
		pairs := strings.Split(u.Query, "&")
		for i, pair := range pairs {
			name, value, ok := strings.Cut(pair, "=")
			switch {
			case !ok:
				pairs[i] = "***"
			case value != "" && !isReference(value):
				pairs[i] = name + "=***"
			}
		}
		u.Query = strings.Join(pairs, "&")
	}
	u.Fragment = ""
	return u.String()
}

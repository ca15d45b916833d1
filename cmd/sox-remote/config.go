package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"sync"

	"github.com/sox-host/sox-host/plugin/wire"
)

// maxHeadersFile bounds the file with headers: 64 KiB. A token is a few kilobytes at most.
const maxHeadersFile = 64 << 10

// config is which server to stand for, as the environment says.
type config struct {
	target    *url.URL // with its secrets
	transport string
	written   map[string]string // headers with their variables
	file      string
	variables func(name string) (string, bool)
}

// loadConfig reads the environment by lookup, which is os.LookupEnv. Its errors say what to change and quote no secret.
func loadConfig(lookup func(string) (string, bool)) (config, error) {
	c := config{variables: lookup, transport: wire.RemoteHTTP}
	text, _ := lookup(wire.EnvRemoteURL)
	if text == "" {
		return c, fmt.Errorf("%s is not set: it names the server to reach", wire.EnvRemoteURL)
	}
	text, err := c.expand(text)
	if err != nil {
		return c, fmt.Errorf(`the "url" %w`, err)
	}
	c.target, err = url.Parse(text)
	switch {
	case err != nil:
		return c, errors.New(`the "url" cannot be read: write it as https://HOST/PATH, with %40 for an @ in a password`)
	case c.target.Scheme != "http" && c.target.Scheme != "https" || c.target.Host == "":
		return c, errors.New(`the "url" has to begin with https://HOST or http://HOST`)
	}
	c.target.Fragment = ""
	switch kind, _ := lookup(wire.EnvRemoteTransport); kind {
	case "", wire.RemoteHTTP:
	case wire.RemoteSSE:
		c.transport = wire.RemoteSSE
	default:
		return c, fmt.Errorf(`the "transport" is %.40q: write %q or %q`, kind, wire.RemoteHTTP, wire.RemoteSSE)
	}
	if raw, _ := lookup(wire.EnvRemoteHeaders); raw != "" {
		if err := json.Unmarshal([]byte(raw), &c.written); err != nil {
			return c, fmt.Errorf(`%s is not a JSON object of texts: write {"Authorization":"${NAME}"}`, wire.EnvRemoteHeaders)
		}
	}
	c.file, _ = lookup(wire.EnvRemoteHeadersFile)
	return c, nil
}

// shown names the server in errors and logs: not its path, in which some services have their keys.
func (c config) shown() string { return c.target.Scheme + "://" + c.target.Host }

// reference is a variable in a text.
var reference = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`) })

// expand replaces ${NAME}. What it put in is not looked at again.
func (c config) expand(text string) (string, error) {
	var missing string
	text = reference().ReplaceAllStringFunc(text, func(ref string) string {
		value, ok := c.variables(ref[2 : len(ref)-1])
		if !ok && missing == "" {
			missing = ref[2 : len(ref)-1]
		}
		return value
	})
	if missing != "" {
		name, _ := c.variables(wire.EnvName) // not set by hosts of before
		return "", fmt.Errorf(`needs the variable %s, which is not set: put it into "env" of %s.json, or let the client set it and name it in "env_allow" there`, missing, cmp.Or(name, "NAME"))
	}
	return text, nil
}

// headers returns what every request carries, read anew from the file each time: a token there may have been renewed.
func (c config) headers() (http.Header, error) {
	h := make(http.Header)
	add := func(where string, from map[string]string) error {
		for name, written := range from {
			value, err := c.expand(written)
			if err != nil {
				return fmt.Errorf("the header %.40s in %s %w", name, where, err)
			}
			if err := wire.CheckRemoteHeader(name, value); err != nil {
				return fmt.Errorf("%s: %w", where, err)
			}
			h.Set(name, value)
		}
		return nil
	}
	if err := add(`"headers"`, c.written); err != nil {
		return nil, err
	}
	if c.file == "" {
		return h, nil
	}
	more, err := readHeadersFile(c.file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.file, err)
	}
	return h, add(c.file, more)
}

// readHeadersFile reads a JSON object of texts from a file that nobody but its owner may read.
func readHeadersFile(path string) (map[string]string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New(`does not exist: write it, or take "headers_file" out`)
	case err != nil:
		return nil, errors.Unwrap(err)
	case !info.Mode().IsRegular() || info.Size() > maxHeadersFile:
		return nil, fmt.Errorf("is not a file of at most %d bytes", maxHeadersFile)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("others may read or write it (mode %04o): make it yours alone with chmod 600", info.Mode().Perm())
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	var headers map[string]string
	if err := json.Unmarshal(raw, &headers); err != nil {
		return nil, errors.New(`is not a JSON object of texts: write {"Authorization": "Bearer …"}`)
	}
	return headers, nil
}

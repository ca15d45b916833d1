package host

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/sox-host/sox-host/host/internal/store"
	"github.com/sox-host/sox-host/plugin/wire"
)

// transportOf is what a client calls the way to a remote server, in our words; "" if it is none of them.
func transportOf(named string) string {
	switch strings.ToLower(named) {
	case "", "http", "streamable-http", "streamablehttp", "streamable_http":
		return wire.RemoteHTTP
	case "sse":
		return wire.RemoteSSE
	}
	return ""
}

// notReachable says why a server behind a url is passed over, or "".
func notReachable(s clientServer) string {
	if transportOf(s.Type) == "" {
		return fmt.Sprintf("of type %q, which sox-remote does not speak: leave it with the client", s.Type)
	}
	settled := s.settle(s.URL)
	parts := store.SplitURL(settled)
	asWritten := s.literal || !variable().MatchString(settled)
	switch {
	case !asWritten && strings.HasPrefix(settled, "${"): // the client fills it in
	case parts.Scheme != "http" && parts.Scheme != "https":
		return "its url is not of http or https: leave it with the client"
	case parts.Host == "":
		return "its url names no host"
	}
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		value := s.Headers[name]
		if value == nil {
			continue
		}
		if err := wire.CheckRemoteHeader(name, *value); err != nil {
			return "its headers cannot be sent: " + err.Error()
		}
	}
	return ""
}

// remote is the manifest of a server behind a url. What could be a secret, the values of headers, a user and a password
// and the query, becomes a variable of its own.
func (e *ImportEntry) remote(s clientServer, values map[string]string) manifestFile {
	e.Version = "0.0.0"
	e.Hints = append(e.Hints, "a remote server has no version to pin, so it is 0.0.0 here: its upgrades are not in your hands, but a manifest with a higher one can lead elsewhere")
	m := manifestFile{Headers: make(map[string]string)}
	if kind := transportOf(s.Type); kind != wire.RemoteHTTP {
		m.Transport = kind
	}
	taken := make(map[string]bool)
	hide := func(what, text string) string {
		name := remoteVariable(s.name, what, taken)
		e.variable(s, &m, values, name, text)
		return "${" + name + "}"
	}
	m.URL = s.hiddenURL(hide)
	for _, header := range slices.Sorted(maps.Keys(s.Headers)) {
		if value := s.Headers[header]; value != nil {
			m.Headers[header] = hide(header, *value)
		}
	}
	e.remoteHints(s, m)
	return m
}

// hiddenURL is the url with variables where secrets may be. A variable of the client in any other place hides all of it.
func (s clientServer) hiddenURL(hide func(what, text string) string) string {
	u := store.SplitURL(s.settle(s.URL))
	u.Fragment = "" // no server ever sees it
	if !s.literal && variable().MatchString(u.Scheme+u.Host+u.Path) {
		return hide("url", s.URL)
	}
	if u.User != "" {
		u.User = hide("user", u.User)
	}
	if u.Query != "" {
		u.Query = hide("query", u.Query)
	}
	return u.String()
}

// remoteVariable is the name of the variable for a part of a server's address: MCP_SERVER_PART, with a number behind it
// if another part has it.
func remoteVariable(server, part string, taken map[string]bool) string {
	base := strings.ToUpper(strings.ReplaceAll("mcp-"+pluginNameOf(server)+"-"+strings.Trim(notInName().ReplaceAllString(strings.ToLower(part), "-"), "-"), "-", "_"))
	name := base
	for n := 2; taken[name]; n++ {
		name = fmt.Sprintf("%s_%d", base, n)
	}
	taken[name] = true
	return name
}

// remoteHints says what a person has to know or to do.
func (e *ImportEntry) remoteHints(s clientServer, m manifestFile) {
	for _, name := range e.Passed {
		for _, ref := range variable().FindAllString(e.passed[name], -1) {
			if id, ok := strings.CutPrefix(ref, "${input:"); ok && !s.literal {
				e.Hints = append(e.Hints, fmt.Sprintf("the client asks for its input %s and passes the answer on in %s", strings.TrimSuffix(id, "}"), name))
			}
		}
	}
	if s.HeadersHelper != nil {
		e.Hints = append(e.Hints, "its headersHelper is not run: have it write a JSON object into a file of mode 0600 and name that in \"headers_file\" of the manifest")
	}
	if s.OAuth != nil || s.Auth != nil {
		e.Hints = append(e.Hints, "sox-remote does not sign in by OAuth: add an \"Authorization\" header to \"headers\" of the manifest, or leave the server with the client")
	}
	u := store.SplitURL(m.URL)
	if host := strings.ToLower(u.Host); u.Scheme == "http" && !isLoopback(host) && len(e.Passed)+len(e.Secrets) > 0 {
		e.Hints = append(e.Hints, fmt.Sprintf("what it sends to %s is not encrypted: write https:// if the server has that", u.Host))
	}
	if _, err := store.FindRemote(); err != nil {
		e.Hints = append(e.Hints, err.Error())
	}
}

// isLoopback says whether a host, perhaps with a port, is this machine.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

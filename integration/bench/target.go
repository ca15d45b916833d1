//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// target is one way to get an answer.
type target struct {
	name     string
	note     string
	relay    *process   // whose CPU is counted; nil = none
	others   []*process // that take part besides the relay and the client
	guest    bool       // another maker's: what it cannot do is noted, and is no failure of the run
	most     int        // bytes of payload in flight at a time; 0 = any
	message  func(payload int) message
	exchange func(m message, n, inFlight int, rec *record) (time.Duration, error)
}

// limitName is the target that all others are divided by.
const limitName = "limit"

// text is a JSON string of about n bytes that reads like what tools return: prose with a line end now and then.
func text(n int) string {
	const line = `The build of 1,204 packages took 38.2 s; three tests were skipped, none failed.\n`
	s := strings.Repeat(line, n/len(line)+1)[:max(n, 1)]
	return `"` + strings.TrimRight(s, `\`) + `"`
}

// plain is a request without MCP.
func plain(method string) func(int) message {
	return func(n int) message {
		return message{[]byte(`{"jsonrpc":"2.0","id":`), fmt.Appendf(nil, `,"method":%q,"params":{"text":%s}}`, method, text(n))}
	}
}

// tool is a tools/call, with extra members of params.
func tool(name, extra string) func(int) message {
	return func(n int) message {
		return message{[]byte(`{"jsonrpc":"2.0","id":`), fmt.Appendf(nil, `,"method":"tools/call","params":{%s"name":%q,"arguments":{"text":%s}}}`, extra, name, text(n))}
	}
}

// modernMeta makes a request one of MCP 2026-07-28.
const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"}},`

const initialize = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}`

// handshake opens an MCP session and waits until a tool is listed.
func handshake(c *client, want string) error {
	if _, err := c.call("initialize", initialize); err != nil {
		return err
	}
	if err := c.notify("notifications/initialized"); err != nil {
		return err
	}
	list, err := c.call("tools/list", `{}`)
	if err == nil && !strings.Contains(string(list), want) {
		err = fmt.Errorf("%q is not listed: %.300s", want, list)
	}
	return err
}

// field of targets, each already running and warm. stop ends all.
type fieldOfTargets struct {
	all     []*target
	host    *process
	procs   []*process
	closers []func() // of connections that are not to a process's stdin and stdout
}

func (f *fieldOfTargets) stop() {
	for _, close := range f.closers {
		close()
	}
	for _, p := range slices.Backward(f.procs) {
		p.stop()
	}
}

// startTargets starts everything that is measured warm and whose name wanted accepts.
func startTargets(p *programs, hostPath string, hostEnv []string, wanted func(string) bool) (*fieldOfTargets, error) {
	f := &fieldOfTargets{}
	if err := f.start(p, hostPath, hostEnv, wanted); err != nil {
		f.stop()
		return nil, err
	}
	f.all = slices.DeleteFunc(f.all, func(t *target) bool { return t.name != limitName && !wanted(t.name) })
	return f, nil
}

func (f *fieldOfTargets) start(p *programs, hostPath string, hostEnv []string, wanted func(string) bool) error {
	relay, backend, err := startPair(p.peer, "relay", "backend")
	if err != nil {
		return err
	}
	f.procs = append(f.procs, backend, relay)
	f.add(&target{name: limitName, note: "two hops, bytes copied, nothing parsed", relay: relay, others: []*process{backend}, message: plain("echo.say")}, newClient(relay))

	stdio, err := start(nil, nil, p.peer, "stdio")
	if err != nil {
		return err
	}
	f.procs = append(f.procs, stdio)
	f.add(&target{name: "stdio", note: "one hop, no relay", others: []*process{stdio}, message: plain("echo.say")}, newClient(stdio))

	daemon, err := start(nil, nil, p.web)
	if err != nil {
		return err
	}
	f.procs = append(f.procs, daemon)
	address, err := newClient(daemon).line(true)
	if err != nil {
		return fmt.Errorf("http: %w", err)
	}
	f.all = append(f.all, &target{name: "http", note: "one hop, localhost, connections kept", others: []*process{daemon}, message: plain("echo.say"), exchange: each(webClient(string(address)))})

	if wanted("naive") {
		naive, err := start(nil, nil, p.naive, p.peer, "stdio")
		if err != nil {
			return err
		}
		f.procs = append(f.procs, naive)
		c := newClient(naive)
		if err := handshake(c, "echo__say"); err != nil {
			return fmt.Errorf("naive: %w", err)
		}
		f.add(&target{name: "naive", note: "two hops, proxy on the official Go SDK", relay: naive, others: naive.family()[1:], message: tool("echo__say", "")}, c)
	}
	if p.against != "" {
		if err := f.startHost(p, p.against, nil, "~"); err != nil {
			return fmt.Errorf("%s: %w", p.against, err)
		}
	}
	return f.startHost(p, hostPath, hostEnv, "")
}

// startHost starts one sox-host with every plugin, for all the targets that it is. Their names end in suffix.
func (f *fieldOfTargets) startHost(p *programs, hostPath string, hostEnv []string, suffix string) error {
	home, err := p.home(map[string]plugin{
		"bare": {program: p.peer}, "echo": {program: p.echo}, "adapted": {program: p.adapted}, "wrapped": {wrapped: []string{p.peer, "stdio"}},
	})
	if err != nil {
		return err
	}
	host, err := start(hostEnv, nil, hostPath, "serve", "--home", home, "--log-level", "error")
	if err != nil {
		return err
	}
	f.procs, f.host = append(f.procs, host), host
	c := newClient(host)
	for _, tool := range []string{"bare__say", "echo__say", "adapted__say", "wrapped__say"} {
		if c.nextID == 0 {
			err = handshake(c, tool)
		}
		if err == nil {
			_, err = c.call("tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"text":"x"}}`, tool))
		}
		if err != nil {
			return fmt.Errorf("sox-host: %w", err)
		}
	}
	others := host.family()[1:]
	for _, t := range []*target{
		{name: "sox-bare-plain", note: "plugin without SDK, plain method", message: plain("bare.say")},
		{name: "sox-bare-tool", note: "plugin without SDK, tools/call", message: tool("bare__say", "")},
		{name: "sox-sdk-raw", note: "SDK plugin, raw plain method, acked", message: plain("echo.raw")},
		{name: "sox-sdk-plain", note: "SDK plugin, typed plain method, acked", message: plain("echo.say")},
		{name: "sox-sdk-read", note: "SDK plugin, tools/call, read-only: no ack", message: tool("echo__say", "")},
		{name: "sox-sdk-write", note: "SDK plugin, tools/call, acked", message: tool("echo__write", "")},
		{name: "sox-sdk-modern", note: "SDK plugin, tools/call of 2026-07-28, no ack", message: tool("echo__say", modernMeta)},
		{name: "sox-wrapped", note: "plain MCP server by a manifest, tools/call", message: tool("wrapped__say", "")},
		{name: "sox-adapted", note: "official Go SDK server through sdk/mcpserver", message: tool("adapted__say", "")},
	} {
		if strings.HasPrefix(t.name, "sox-sdk") || t.name == "sox-adapted" {
			t.most = 4 << 20 // what takes seconds says nothing new
		}
		t.name, t.relay, t.others = t.name+suffix, host, others
		f.add(t, c)
	}
	return nil
}

func (f *fieldOfTargets) add(t *target, c *client) {
	t.exchange = c.exchange
	f.all = append(f.all, t)
}

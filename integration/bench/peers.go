//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// peerSpec is a proxy of another maker, and how it is told to offer one MCP server over stdin and stdout. Each says as
// little in its log as it can be told to.
type peerSpec struct {
	name, version string
	script        string // of an npm package, below node_modules
	module        string // of a Go program, for go install
	path          string // of its MCP endpoint; "" for one that speaks on stdin and stdout
	events        bool   // its endpoint is the older pair of a stream of events and posts
	tool          string // the name that it gives to the tool say
	start         func(at peerPlace) (args, env []string)
}

// peerPlace is what a peer has to be told.
type peerPlace struct {
	server []string // command of the MCP server
	config string   // file that names the server and the port
	port   string
}

// peerSpecs are the public peers, those that speak on stdin and stdout first.
var peerSpecs = []peerSpec{
	{
		name: "combine-mcp", version: "v1.1.0", module: "github.com/nazar256/combine-mcp/cmd/combine-mcp", tool: "echo_say",
		start: func(at peerPlace) (args, env []string) {
			return nil, []string{"MCP_CONFIG=" + at.config, "MCP_LOG_LEVEL=error"}
		},
	},
	{
		name: "tbxark-mcp-proxy", version: "v0.43.2", module: "github.com/TBXark/mcp-proxy", path: "/echo/", tool: "say",
		start: func(at peerPlace) (args, env []string) { return []string{"-config", at.config}, nil },
	},
	{
		name: "mcp-proxy", version: "6.7.19", script: "mcp-proxy/dist/bin/mcp-proxy.mjs", path: "/mcp", tool: "say",
		start: func(at peerPlace) (args, env []string) {
			return append([]string{"--host", "127.0.0.1", "--port", at.port, "--server", "stream", "--"}, at.server...), nil
		},
	},
	{
		name: "supergateway", version: "4.0.0", script: "supergateway/dist/index.js", path: "/mcp", tool: "say",
		start: func(at peerPlace) (args, env []string) {
			return []string{"--stdio", strings.Join(at.server, " "), "--outputTransport", "streamableHttp", "--stateful", "--port", at.port,
				"--logLevel", "none"}, nil
		},
	},
	{
		name: "mcp-hub", version: "4.2.1", script: "mcp-hub/dist/cli.js", path: "/mcp", events: true, tool: "echo__say",
		start: func(at peerPlace) (args, env []string) {
			return []string{"--port", at.port, "--config", at.config}, nil
		},
	},
}

// peerNote is what the report says of a peer besides its cells.
type peerNote struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Spoken  string `json:"spoken"`           // how the benchmark talks to it
	Absent  string `json:"absent,omitempty"` // why it is not measured
}

// peerStartTime bounds the time until a peer lists the tool. Node programs take seconds on a busy machine: 60 s.
const peerStartTime = 60 * time.Second

// startPeers adds every peer that can be installed and started, and notes why the others are missing.
func (f *fieldOfTargets) startPeers(p *programs, given map[string]string, wanted func(string) bool) ([]*peerNote, error) {
	in := &installer{p: p, given: given}
	var notes []*peerNote
	for _, s := range peerSpecs {
		if !wanted(s.name) {
			continue
		}
		note := &peerNote{Name: s.name, Version: s.version, Spoken: s.spoken()}
		notes = append(notes, note)
		fmt.Fprintf(os.Stderr, "peer %s\n", s.name)
		command, err := in.command(s)
		if err != nil {
			note.Absent = "not installed: " + err.Error()
			continue
		}
		dir, err := os.MkdirTemp(p.dir, "peer")
		if err != nil {
			return nil, err
		}
		t, err := f.startPeer(s, dir, command, []string{p.peer, "stdio"})
		if err != nil {
			note.Absent = "does not start: " + oneLine(err.Error())
			continue
		}
		f.all = append(f.all, t)
	}
	return notes, nil
}

// spoken says how the benchmark talks to the peer.
func (s peerSpec) spoken() string {
	switch {
	case s.path == "":
		return "stdio"
	case s.events:
		return "HTTP and a stream of events"
	}
	return "streamable HTTP"
}

// startPeer starts one in a folder of its own and waits until it lists the tool.
func (f *fieldOfTargets) startPeer(s peerSpec, dir string, command, server []string) (*target, error) {
	at := peerPlace{server: server, config: filepath.Join(dir, "config.json")}
	var err error
	if at.port, err = freePort(); err != nil {
		return nil, err
	}
	config, err := json.Marshal(map[string]any{
		"mcpServers": map[string]any{"echo": map[string]any{"command": server[0], "args": server[1:]}},
		"mcpProxy": map[string]any{ // read by one of them, which is told its port by it
			"baseURL": "http://127.0.0.1:" + at.port, "addr": "127.0.0.1:" + at.port, "name": "bench", "version": "1.0.0",
			"type": "streamable-http", "options": map[string]any{"logEnabled": false},
		},
	})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(at.config, config, 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	args, env := s.start(at)
	cmd := exec.Command(command[0], append(command[1:], args...)...)
	cmd.Dir, cmd.Stderr = dir, log
	if s.path != "" {
		cmd.Stdout = log
	}
	// Nothing of the user's: no settings, no record of what was started.
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "XDG_CONFIG_HOME=" + dir, "XDG_STATE_HOME=" + dir, "XDG_DATA_HOME=" + dir}, env...)
	proc, err := startCommand(cmd)
	if err != nil {
		return nil, err
	}
	t := &target{name: s.name, note: "proxy of another maker, " + s.spoken(), relay: proc, guest: true, message: tool(s.tool, "")}
	stop, err := s.connect(t, proc, at.port)
	if err != nil {
		proc.stop()
		return nil, errors.Join(err, lastLine(log.Name()))
	}
	t.others = proc.family()[1:]
	f.procs = append(f.procs, proc)
	f.closers = append(f.closers, stop)
	return t, nil
}

// connect opens a session and sets how t is asked.
func (s peerSpec) connect(t *target, proc *process, port string) (stop func(), err error) {
	stop = func() {}
	if s.path == "" {
		late := time.AfterFunc(peerStartTime, proc.kill) // ends a read that would wait for ever
		defer late.Stop()
		c := newClient(proc)
		t.exchange = func(m message, n, inFlight int, rec *record) (time.Duration, error) {
			late := time.AfterFunc(answerTime, proc.kill)
			defer late.Stop()
			return c.exchange(m, n, inFlight, rec)
		}
		return stop, handshake(c, s.tool)
	}
	c := newMCPHTTP("http://127.0.0.1:" + port + s.path)
	t.exchange = each(c.once)
	err = proc.until(time.Now().Add(peerStartTime), func() error {
		if s.events {
			if err := c.listen(); err != nil {
				return err
			}
		}
		return c.open()
	})
	if err == nil { // some list nothing until their server is there
		err = proc.until(time.Now().Add(peerStartTime), func() error {
			list, err := c.call("tools/list", `{}`)
			if err == nil && !bytes.Contains(list, []byte(`"`+s.tool+`"`)) {
				err = fmt.Errorf("%q is not listed: %.300s", s.tool, list)
			}
			return err
		})
	}
	if err != nil {
		c.close()
	}
	return c.close, err
}

// until tries again, ten times a second, until try succeeds, the process ends, or it is too late.
func (p *process) until(late time.Time, try func() error) error {
	for {
		err := try()
		if err == nil || time.Now().After(late) {
			return err
		}
		select {
		case <-p.exited:
			return fmt.Errorf("it has ended: %v", p.cmd.ProcessState)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// freePort is a port of localhost that nobody listens on. Another program could take it before the peer does; the
// peer then does not start, and says so.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// lastLine is the end of a log, as an error; nil for an empty one.
func lastLine(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return fmt.Errorf("its log ends with %.300q", last)
	}
	return nil
}

// oneLine makes a text fit into a table.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	return strings.ReplaceAll(s, "|", "/")
}

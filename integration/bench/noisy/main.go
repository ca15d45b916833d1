// Noisy is the plugin that misbehaves beside those whose latency is measured. It floods, or ends, when a call says so.
// It speaks the protocol by hand, so that nothing bounds what it sends.
//
//	noisy                 as a plugin of sox-host
//	noisy beside KIND N   floods a program that only reads with N a second, until its stdin ends: the same outside of a host
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 4 && os.Args[1] == "beside":
		perSecond, _ := strconv.Atoi(os.Args[3]) // 0 floods without pause
		err = beside(os.Args[2], perSecond)
	case len(os.Args) == 2 && os.Args[1] == "drain":
		_, err = io.Copy(io.Discard, os.Stdin)
	case os.Getenv("SOX_PLUGIN_FD") == "3":
		socket := os.NewFile(3, "host")
		err = (&noisy{socket: socket}).serve(socket)
	default:
		err = errors.New("usage: noisy beside KIND N, or as a plugin of sox-host")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "noisy:", err)
		os.Exit(1)
	}
}

// beside floods a child that only reads.
func beside(kind string, perSecond int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "drain")
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { // ends the process with the benchmark's wish, or with the benchmark
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = cmd.Process.Kill()
		os.Exit(0)
	}()
	var sent atomic.Int64
	begun := time.Now()
	flood(kind, 1, in, in, func() bool {
		for perSecond > 0 && float64(sent.Load()) > time.Since(begun).Seconds()*float64(perSecond) {
			time.Sleep(time.Millisecond)
		}
		return false
	}, &sent)
	return nil
}

// noisy is the plugin. Its reader answers; floods write beside it.
type noisy struct {
	mu     sync.Mutex // one frame at a time
	socket io.Writer

	session uint64       // of the MCP client, 0 before there is one; only the reader's
	sent    atomic.Int64 // lines and frames of all floods
	floods  sync.WaitGroup
}

func (n *noisy) Write(frame []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.socket.Write(frame)
}

func (n *noisy) serve(socket io.Reader) error {
	const ready = `{"jsonrpc":"2.0","method":"sox/ready","params":{"protocol":{"min":1,"max":1},"name":"noisy","version":"1.0.0","mcp":["2025-11-25"],` +
		`"methods":["noisy.*"],"capabilities":{},"limits":{}}}`
	if _, err := n.Write(wire.AppendFrame(nil, []byte(ready))); err != nil {
		return err
	}
	for frames := wire.NewFrameReader(socket, 0); ; {
		body, err := frames.Next()
		if err != nil {
			return nil // the host has gone
		}
		var env wire.Envelope
		if err := wire.Scan(body, &env); err != nil {
			return err
		}
		if string(env.Method()) == "sox/shutdown" {
			return nil
		}
		if env.ID() == nil {
			continue
		}
		result, err := n.answer(&env)
		if err != nil {
			return err
		}
		if _, err := n.Write(wire.AppendFrame(nil, wire.AppendResult(nil, env.ID(), result))); err != nil {
			return err
		}
	}
}

// answer does what a request asks for.
func (n *noisy) answer(env *wire.Envelope) ([]byte, error) {
	switch string(env.Method()) {
	case "sox/session.open":
		var p struct {
			Session uint64
			MCP     *string
		}
		if err := json.Unmarshal(env.Params(), &p); err != nil {
			return nil, err
		}
		if p.MCP != nil {
			n.session = p.Session
		}
		return []byte("{}"), nil
	case "initialize":
		return []byte(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"noisy","version":"1.0.0"}}`), nil
	case "tools/list":
		return []byte(`{"tools":[{"name":"say","inputSchema":{"type":"object"}}]}`), nil
	case "noisy.flood":
		var p struct {
			Kind string
			MS   int
		}
		if err := json.Unmarshal(env.Params(), &p); err != nil {
			return nil, err
		}
		session, until := n.session, time.Now().Add(time.Duration(p.MS)*time.Millisecond)
		n.floods.Go(func() { // ends by its time; serve does not wait for it when the process ends
			flood(p.Kind, session, n, os.Stderr, func() bool { return time.Now().After(until) }, &n.sent)
		})
		return []byte("{}"), nil
	case "noisy.sent": // after the floods have ended
		n.floods.Wait()
		return fmt.Appendf(nil, `{"sent":%d,"pid":%d}`, n.sent.Load(), os.Getpid()), nil
	case "noisy.exit":
		os.Exit(3)
	}
	return []byte(`{"content":[]}`), nil
}

// flood writes without pause: "log" lines to stderr, "message" notifications for the client, or "relist" notices that
// the list changed. It stops when ended says so, or when nobody reads any more.
func flood(kind string, session uint64, frames, stderr io.Writer, ended func() bool, sent *atomic.Int64) {
	one, out := []byte("The build of 1,204 packages took 38.2 s; three tests were skipped, none failed.\n"), stderr
	switch kind {
	case "message":
		out, one = frames, wire.AppendFrame(nil, wire.AppendNotification(nil, session, "notifications/message", []byte(`{"level":"error","data":"`+string(one[:len(one)-1])+`"}`)))
	case "relist":
		out, one = frames, wire.AppendFrame(nil, wire.AppendNotification(nil, session, "notifications/tools/list_changed", nil))
	}
	for !ended() {
		if _, err := out.Write(one); err != nil {
			return
		}
		sent.Add(1)
	}
}

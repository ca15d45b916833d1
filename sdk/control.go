package sdk

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
)

// ready is what the plugin says first.
func (p *Plugin) ready() wire.Ready {
	r := wire.Ready{
		Protocol: wire.ProtocolRange{Min: wire.Protocol, Max: wire.Protocol},
		Name:     p.name,
		Version:  p.version,
		Capabilities: wire.Capabilities{
			Ack: true, Cancel: true, Health: true,
			Snapshot: p.save != nil, Exclusive: p.exclusive, Serial: p.serial,
		},
		ReadOnly: p.locked,
		Limits:   p.Limits().wire(),
	}
	if p.servesMCP() {
		r.MCP = p.mcpServer().Revisions()
	}
	for name := range p.methods {
		r.Methods = append(r.Methods, name)
	}
	slices.Sort(r.Methods)
	return r
}

// readyBytes is room for the ready frame of a plugin with some ten methods: 1 KiB.
const readyBytes = 1 << 10

// appendReady appends the notification sox/ready.
func (p *Plugin) appendReady(dst []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","method":"`+wire.MethodReady+`","params":`...)
	r := p.ready()
	return append(r.Append(dst), '}')
}

// health answers sox/health. It is no work: the retirer is not told.
func (srv *server) health(ctx context.Context) (json.RawMessage, error) {
	if check := srv.p.health; check != nil {
		if err := check(ctx); err != nil {
			return nil, err
		}
	}
	running, waiting := srv.gate.load()
	return encode(map[string]any{
		"status": "ok", "running": running, "waiting": waiting,
		"sessions": srv.p.Sessions(), "uptime_ms": time.Since(srv.started).Milliseconds(),
	})
}

// snapshot answers sox/snapshot with {"state":...}, which is also what sox/restore takes.
func (srv *server) snapshot(ctx context.Context) (json.RawMessage, error) {
	state, err := srv.p.save(ctx)
	if err != nil {
		return nil, err
	}
	return encode(map[string]any{"state": state})
}

func (srv *server) restore(ctx context.Context, params []byte) (json.RawMessage, error) {
	state := wire.Member(params, "state")
	if state == nil {
		return nil, InvalidParams("%s: state is missing", wire.MethodRestore)
	}
	if err := srv.p.restore(ctx, state); err != nil {
		return nil, err
	}
	return json.RawMessage("{}"), nil
}

package host

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"runtime"
	"runtime/metrics"
	"strings"
	"time"

	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/host/internal/store"
	"github.com/sox-host/sox-host/plugin/wire"
)

// Control implements control.Handler: the requests of the command line.
func (h *Host) Control(ctx context.Context, method string, params json.RawMessage, progress func(v any)) (any, *wire.Error) {
	switch method {
	case methodStatus:
		return h.Status(), nil
	case methodUpgrade:
		var req UpgradeRequest
		if err := json.Unmarshal(params, &req); err != nil {
			return nil, wire.Errorf(wire.CodeInvalidParams, "params of %s: %v", methodUpgrade, err)
		}
		return h.Upgrade(ctx, req, func(e StepEvent) { progress(e) }), nil
	case methodAsk:
		var o AskOptions
		if err := json.Unmarshal(params, &o); err != nil {
			return nil, wire.Errorf(wire.CodeInvalidParams, "params of %s: %v", methodAsk, err)
		}
		answer, failed := h.ask(ctx, o, h.cfg.Plugin == "")
		if failed != nil {
			return nil, failed
		}
		return answer, nil
	}
	return nil, wire.Errorf(wire.CodeMethodNotFound, "this host has no control method %q; its version is %s", method, h.cfg.Version)
}

// Upgrade carries out an upgrade, rollback or restart of one plugin. A plugin whose first file has just been
// dropped is picked up by it.
func (h *Host) Upgrade(ctx context.Context, req UpgradeRequest, progress func(StepEvent)) Report {
	s := h.slot(req.Plugin)
	if s == nil {
		h.scan(store.Scan)
		s = h.slot(req.Plugin)
	}
	if s == nil {
		_, missing, err := scanFolder(h.home, h.cfg.PluginsDir)
		if err == nil {
			err = unknownPlugin(req.Plugin, h.cfg.PluginsDir, missing)
		}
		return Report{
			Plugin: req.Plugin, Result: slot.ResultFailed, Exit: exitOf(err), FailedStep: slot.StepResolve, PID: os.Getpid(), Error: err.Error(),
		}
	}
	began := time.Now()
	l := h.launcher(req.Plugin)
	report := s.Upgrade(ctx, req, func(e StepEvent) {
		if e.Step == slot.StepCutover && req.Restart {
			l.recordInstance()
		}
		if progress != nil {
			progress(e)
		}
	})
	report.PID = os.Getpid()
	if l.joined.link(report.Generation) != nil {
		report.Lifetime = lifetimeShared
	}
	if !req.DryRun {
		h.logOperation(report, time.Since(began))
	}
	return report
}

// logOperation says in one line what became of an operation.
func (h *Host) logOperation(r Report, took time.Duration) {
	text := strings.TrimSpace(r.Plugin + " " + r.From)
	if r.To != "" {
		text += " -> " + r.To
	}
	args := []any{"result", string(r.Result), "duration", took.Round(time.Millisecond)}
	if r.Error != "" {
		args = append(args, "error", r.Error)
	}
	h.log.Info(text, args...)
}

// runtimeCounters are what the Go runtime knows of this process: its goroutines, and the bytes of the heap that were in
// use when they were last collected.
func runtimeCounters() map[string]uint64 {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return map[string]uint64{"goroutines": uint64(runtime.NumGoroutine()), "heap_live_bytes": live[0].Value.Uint64()}
}

// Status describes the host.
func (h *Host) Status() Status {
	st := Status{
		PID:        os.Getpid(),
		Version:    h.cfg.Version,
		Home:       h.home.Dir(),
		PluginsDir: h.cfg.PluginsDir,
		Since:      h.since,
		Counters:   runtimeCounters(),
	}
	maps.Copy(st.Counters, h.gw.Counters())
	if h.session != nil {
		st.Client, st.Protocol = h.session.ClientName()
	}
	h.mu.Lock()
	slots := h.orderedLocked()
	st.Problems = append(st.Problems, h.problems...)
	h.mu.Unlock()
	st.Problems = append(st.Problems, h.gw.Problems("")...)
	listing, err := store.Scan(h.cfg.PluginsDir)
	for _, s := range slots {
		p, best := s.Status(), ""
		p.Problems = append(append(p.Problems, h.gw.Problems(s.Name())...), h.output.problems(s.Name())...)
		if err == nil {
			if candidates := listing.Candidates(s.Name()); len(candidates) > 0 {
				best = candidates[0].Version.String()
			}
		}
		if best != p.Version && h.cfg.Attach[s.Name()] == "" {
			p.Available = best
		}
		h.launcher(s.Name()).describe(&p, best)
		st.Plugins = append(st.Plugins, p)
	}
	return st
}

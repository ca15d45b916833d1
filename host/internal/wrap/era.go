package wrap

import (
	"context"
	"time"

	"github.com/sox-host/sox-host/host/internal/bridge"
	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/plugin/wire"
)

// Era says which MCP a server speaks.
type Era string

// The eras. The empty value means that it is not known.
const (
	Legacy     Era = "legacy"      // initialize, up to 2025-11-25
	Modern     Era = "modern"      // requests that carry their version, since 2026-07-28; perhaps legacy too
	ModernOnly Era = "modern-only" // and initialize is refused
)

// Eras remembers the era of one build across launches. Errors are its own to log: what is forgotten is found
// out again.
type Eras interface {
	Load() Era
	// Save ends with ctx, which is done when the server is being stopped.
	Save(ctx context.Context, era Era)
}

const (
	// DefaultProbeTimeout is how long a server may take to answer server/discover before it counts as legacy:
	// 2 s. Silent servers exist, and a client waits for its first list meanwhile; but only once for a build.
	DefaultProbeTimeout = 2 * time.Second
	// patientProbe is the same for a server that has refused initialize, so that only the modern era is left:
	// 8 s, as long as a first list is waited for.
	patientProbe = 8 * time.Second
)

// afterProbe stops the process of a probe. Its successor waits for it, because some servers lock a file.
var afterProbe = process.Ladder{Close: 250 * time.Millisecond, Term: 250 * time.Millisecond, Kill: 500 * time.Millisecond}

// remembered returns what is known of the era, and starts nothing.
func (b *Backend) remembered() Era {
	b.mu.Lock()
	era := b.era
	b.mu.Unlock()
	if era != "" || b.cfg.Eras == nil {
		return era
	}
	era = b.cfg.Eras.Load()
	switch era {
	case Legacy, Modern, ModernOnly:
	default: // of another release
		return ""
	}
	b.mu.Lock()
	b.era = era
	b.mu.Unlock()
	return era
}

// remember keeps an era, here and for later launches.
func (b *Backend) remember(era Era) {
	b.mu.Lock()
	known := b.era == era
	b.era = era
	b.mu.Unlock()
	if !known && b.cfg.Eras != nil {
		b.cfg.Eras.Save(b.ctx, era)
	}
}

// findEra returns the era of the build. If it is not known, or suspect and this backend has had no answer yet, the
// server is asked: who was silent before may only have been slow to start. One caller at a time asks.
func (b *Backend) findEra(suspect bool, patience time.Duration) (Era, error) {
	select {
	case b.eraC <- struct{}{}:
		defer func() { <-b.eraC }()
	case <-b.ctx.Done():
		return "", errEnding
	}
	era := b.remembered()
	b.mu.Lock()
	probed := b.probed
	b.mu.Unlock()
	if era != "" && (!suspect || probed || era != Legacy) {
		return era, nil
	}
	era, answered, err := b.probe(patience)
	if err != nil {
		return "", err
	}
	b.mu.Lock()
	b.probed = answered || suspect // patience has an end
	b.mu.Unlock()
	b.remember(era)
	b.log.Debug("asked the server for its era", "era", string(era))
	return era, nil
}

// probe asks a fresh process for server/discover and stops it. Only an answer that lists the modern revision
// means modern; an error of any code, silence and an exit all mean legacy. answered is false for silence. The process
// is thrown away, since some servers cannot be initialized after the question, and some have exited by it. An error
// means that the command could not be started.
func (b *Backend) probe(patience time.Duration) (era Era, answered bool, err error) {
	c, err := b.cfg.spawn(b.ctx)
	if err != nil {
		return "", false, err
	}
	c.retire()
	p := &prober{answered: make(chan bool, 1)}
	if !b.attend(c, p) {
		return "", false, errEnding
	}
	defer func() {
		c.proc.Stop(afterProbe)
		<-c.ended
	}()
	params := bridge.Claim(nil, bridge.Claims{ClientInfo: []byte(bridge.Anonymous)})
	err = c.send(func(dst []byte) []byte {
		return wire.AppendRequest(dst, wire.Head{ID: probeID}, "server/discover", params)
	})
	if err != nil { // it has exited, or closed its stdin
		p.say(false)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	era, answered = Legacy, true
	select {
	case modern := <-p.answered:
		if modern {
			era = Modern
		}
	case <-c.ended:
	case <-timer.C:
		answered = false
	case <-b.ctx.Done():
	}
	if b.closing() { // perhaps it ended only because of that
		return "", false, errEnding
	}
	return era, answered, nil
}

// probeID is the id of the only request of a probe.
const probeID = 1

// prober waits for the answer to server/discover.
type prober struct {
	answered chan bool // capacity 1; true = modern
}

func (p *prober) message(_ *child, env *wire.Envelope) {
	if id, ok := wire.ParseUint(env.ID()); env.Kind != wire.Response || !ok || id != probeID {
		return
	}
	p.say(listsModern(wire.Member(env.Result(), "supportedVersions")))
}

// listsModern reports an array of revisions that has the modern one.
func listsModern(revisions []byte) (modern bool) {
	wire.EachElement(revisions, func(raw []byte) bool {
		modern = string(wire.Unquote(raw)) == wire.RevisionModern
		return !modern
	})
	return modern
}

// saysModern reports a refusal of initialize that says that the server has the modern era (MCP 2026-07-28,
// UnsupportedProtocolVersionError).
func saysModern(errObj []byte) bool {
	code, _ := bridge.CodeOf(errObj)
	return code == wire.CodeUnsupportedVersion && listsModern(wire.Member(wire.Member(errObj, "data"), "supported"))
}

func (p *prober) unusable(*child, []byte, *wire.Error) { p.say(false) }

// say keeps the first answer.
func (p *prober) say(modern bool) {
	select {
	case p.answered <- modern:
	default:
	}
}

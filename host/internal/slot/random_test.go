package slot

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// TestAnything lets random clients, plugins and operators loose on a slot. What must hold whatever happens is
// checked at the end: each request ended exactly once or was cancelled, no Once handler ran twice, and what
// was said not to have run never did. On the way, the generation that serves only grows, except by a rollback.
func TestAnything(t *testing.T) {
	operations := 2500
	if testing.Short() {
		operations = 500
	}
	for seed := range uint64(8) {
		t.Run(fmt.Sprintf("seed_%d", seed), func(t *testing.T) {
			bubble(t, []string{"1.0.0", "1.1.0", "1.2.0", "1.3.0"}, func(e *env) {
				c := &chaos{env: e, rand: rand.New(rand.NewPCG(seed, 1)), noAck: seed%4 == 3}
				c.run(operations, Settings{
					Queue: 50, Waiting: 20, DrainTimeout: 3 * time.Second, CallTimeout: time.Minute, StartTimeout: 4 * time.Second,
					Exclusive:  seed%4 == 1,
					IdleRetire: []time.Duration{0, 5 * time.Second}[seed%2],
					InFlight:   []int{0, 5, 1}[seed%3],
				})
			})
		})
	}
}

// chaos makes random choices, all from one seed.
type chaos struct {
	*env
	rand     *rand.Rand
	noAck    bool
	sessions []*Session
	open     []*result
	running  []<-chan Report // operations under way
	done     int             // operations that ended
	highest  uint64          // generation seen
	reverts  uint64
}

func (c *chaos) one(n int) bool { return c.rand.IntN(n) == 0 }

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

func (c *chaos) run(operations int, settings Settings) {
	c.env.open(settings)
	c.sessions = []*Session{c.session(), c.session(), c.plain()}
	for range operations {
		c.step()
		c.look()
	}
	for _, p := range c.all() { // let what can end in peace do so
		p.thaw()
		p.answerAll()
	}
	pass(2 * time.Minute)
	for _, r := range c.running {
		<-r
		c.done++
	}
	if c.done == 0 && operations > 1000 {
		c.t.Error("no operation ended: nothing was tested")
	}
	answered, unknown, refused := 0, 0, 0
	for _, r := range c.seen {
		if !r.ended() {
			continue
		}
		switch {
		case r.err == nil:
			answered++
		case executed(r.err) == "no":
			refused++
		default:
			unknown++
		}
	}
	if operations > 1000 && (answered < 100 || unknown < 10 || refused < 10) {
		c.t.Errorf("%d answered, %d unknown, %d refused: not much of a test", answered, unknown, refused)
	}
	c.t.Logf("%d requests: %d answered, %d unknown, %d refused; %d operations, %d starts, generation %d",
		len(c.seen), answered, unknown, refused, c.done, c.starts(forever), c.highest)
}

// step does one thing.
func (c *chaos) step() {
	switch c.rand.IntN(100) {
	default:
		c.request()
	case 0, 1:
		c.misfortune()
	case 2, 3, 4:
		c.operate()
	case 5, 6, 7, 8, 9, 10, 11, 12:
		if all := c.all(); len(all) > 0 {
			p := all[len(all)-1-c.rand.IntN(min(len(all), 3))]
			p.thaw()
			p.answerAll()
		}
	case 13, 14, 15, 16, 17:
		if len(c.open) > 0 {
			i := c.rand.IntN(len(c.open))
			c.cancel(c.open[i])
			c.open = append(c.open[:i], c.open[i+1:]...)
		}
	case 18:
		i := c.rand.IntN(len(c.sessions))
		c.slot.CloseSession(c.sessions[i])
		c.sessions[i] = pick(c.rand, []func() *Session{c.session, c.session, c.plain})()
	case 19:
		c.relist(pick(c.rand, c.sessions))
		c.slot.Want(pick(c.rand, c.sessions))
		c.slot.Notify(pick(c.rand, c.sessions), "notifications/roots/list_changed", nil)
	case 20, 21, 22, 23, 24, 25, 26, 27, 28, 29:
		pass(time.Duration(c.rand.IntN(300)) * time.Millisecond)
	case 30:
		pass(time.Duration(c.rand.IntN(20)) * time.Second)
	case 31, 32, 33, 34, 35, 36, 37, 38, 39:
		synctest.Wait()
	}
}

func (c *chaos) request() {
	hows := []string{"", "", "", "", "", "", "hold", "hold", "hold-once"}
	if c.one(30) {
		hows = []string{"crash", "crash-once", "crash-before-ack", "exit"}
	}
	s := pick(c.rand, c.sessions)
	class := Class(c.rand.IntN(3))
	if s.Revision == "" {
		class = Once
	}
	r := c.env.request(s, class, pick(c.rand, hows))
	if c.one(10) {
		r.req.Deadline, r.req.Timed = time.Now().Add(time.Duration(c.rand.IntN(4000))*time.Millisecond), c.one(2)
	}
	c.send(r)
	c.open = append(c.open, r)
	if len(c.open) > 100 {
		c.open = c.open[50:]
	}
}

// misfortune befalls a running plugin.
func (c *chaos) misfortune() {
	all := c.all()
	if len(all) == 0 {
		return
	}
	p := all[len(all)-1-c.rand.IntN(min(len(all), 2))]
	switch c.rand.IntN(7) {
	case 0, 1:
		p.kill()
	case 2:
		p.die(0, "")
	case 3:
		p.freeze(c.rand.IntN(300))
	case 4:
		_ = p.own.Close()
	case 5:
		p.set(func(s *script) { s.ignoresStop = true })
	case 6:
		p.thaw()
	}
}

// operate runs an upgrade, a rollback or a restart of a build that may be a bad one.
func (c *chaos) operate() {
	version := pick(c.rand, []string{"1.0.0", "1.1.0", "1.2.0", "1.3.0"})
	c.set(version, func(s *script) {
		*s = script{noAck: c.noAck, bootDelay: time.Duration(c.rand.IntN(500)) * time.Millisecond}
		switch c.rand.IntN(24) {
		case 0:
			s.exitAtStart = true
		case 1:
			s.silent = true
		case 2:
			s.exitOnList = true
		case 3:
			s.exitAfter = true
		case 4:
			s.exitAtReady = true
		case 5:
			s.tools = []string{defaultTools[0]}
		case 6:
			s.refuseOpen = true
		case 7:
			s.snapshot = true
		}
	})
	req := UpgradeRequest{
		AllowDowngrade: true, AllowBreaking: c.one(2), DryRun: c.one(20),
		SettleMS:       pick(c.rand, []int64{0, quick, 500}),
		DrainTimeoutMS: pick(c.rand, []int64{0, 200, 1000}),
	}
	switch c.rand.IntN(6) {
	case 0:
		req.Rollback = true
	case 1:
		req.Restart = true
	case 2:
		req.Adopt = true
	default:
		req.To = version
	}
	c.running = append(c.running, c.start(req))
	for len(c.running) > 4 {
		<-c.running[0]
		c.done++
		c.running = c.running[1:]
	}
}

// look checks that the generation that serves only grows, except by a rollback, and that the queue is bounded.
func (c *chaos) look() {
	s := c.slot
	s.mu.Lock()
	var serving uint64
	if s.active != nil {
		serving = s.active.num
	}
	queued, reverts := len(s.queue), s.counters.rollbacks
	s.mu.Unlock()
	if queued > max(s.cfg.Settings.Queue, s.cfg.Settings.Waiting)+len(c.open) { // beyond the bound only by what is repeated
		c.t.Errorf("%d queued", queued)
	}
	if serving == 0 {
		return
	}
	if serving < c.highest && reverts == c.reverts {
		c.t.Errorf("generation %d after %d without a rollback", serving, c.highest)
	}
	c.highest, c.reverts = serving, reverts
}

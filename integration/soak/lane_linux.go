package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sox-host/sox-host/integration/internal/history"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

// lane breaks one plugin, one step after the other.
type lane struct {
	*round
	p *plug
}

// run takes steps until the round stops.
func (l *lane) run(plan *plan) {
	for {
		d := plan.next()
		sleep(d.pause, l.stop)
		select {
		case <-l.stop:
			return
		case <-l.client.ended:
			return
		default:
		}
		l.world.events.add(l.p.name, "round %d %s", l.n, d)
		l.step(d)
	}
}

// outcome is what a step did to the versions.
type outcome struct {
	to    string // a version that was switched to, "" if none was
	maybe bool   // perhaps, or for a moment only
	kills bool   // the active process may have died
	known bool   // and did, for sure
}

// step takes one decision, waits until the plugin answers again, and records which version it is now.
func (l *lane) step(d decision) {
	p := l.p
	began := l.rec.Now()
	wall := time.Now()
	active := l.probe(p, 20*time.Second)
	if active == nil {
		l.lost("before "+d.kind, began)
		return
	}
	p.midway = l.targets(d)
	defer func() {
		if !l.stopping() {
			p.midway = nil
		}
	}()
	var second sync.WaitGroup
	if d.second != "" {
		// Ends with its fault, in seconds.
		second.Go(func() {
			sleep(d.delay, l.client.ended)
			l.fault(d.second, d, active)
			l.count(d.second)
		})
		l.see(seenTwoAtOnce)
	}
	o := l.fault(d.kind, d, active)
	l.count(d.kind)
	second.Wait()
	if d.second == faultKill {
		o.kills, o.known = true, false
	}
	if o.known && d.second == "" {
		l.died(p.name, 1, 1)
	} else if o.kills || o.to != "" {
		l.died(p.name, 0, 4) // the second, and what an upgrade may have on its way
	}
	l.settled(o, d, began, wall)
}

// settled waits for the plugin and records the switches.
func (l *lane) settled(o outcome, d decision, began time.Duration, wall time.Time) {
	p := l.p
	now := l.probe(p, 20*time.Second)
	for tries := 0; now != nil && now.version[0] == '9'; tries++ { // a bad version that crashes soon
		if tries > 400 {
			l.fail("G6", p.name, "the bad version %s is still there", now.version)
			break
		}
		sleep(25*time.Millisecond, l.client.ended)
		now = l.probe(p, 20*time.Second)
	}
	if now == nil {
		l.lost("after "+d.kind, began)
		// An upgrade closes the breaker, if that is what is in the way.
		if !l.stopping() {
			l.roll("restart", p.name, "--settle", "0")
			now = l.probe(p, 60*time.Second)
		}
	}
	ended := l.rec.Now()
	l.worst(func(w *worst) { w.Recovery = max(w.Recovery, time.Since(wall)) })
	final := p.current
	if now != nil {
		final = now.version
	}
	at := p.current
	add := func(to string, uncertain bool) {
		if to == at || to == "" {
			return
		}
		l.rec.Switched(history.Switch{Plugin: p.name, To: to, Began: began, Ended: ended, Uncertain: uncertain})
		at = to
	}
	if o.kills && (o.to != "" || now == nil) {
		add(p.previous, true) // the active one may have died in its probation, and nobody saw what followed
	}
	add(o.to, o.maybe || o.to != final)
	add(final, now == nil || o.maybe && o.to == final && o.kills)
	if final != p.current {
		l.world.events.add(p.name, "%s -> %s", p.current, final)
	}
	if versions, err := l.world.committed(); err == nil && now != nil {
		v := versions[p.name]
		if v[0] != final && !l.stopping() {
			l.fail("G7", p.name, "%s answers, and %s is committed", final, v[0])
		}
		p.previous = v[1]
	}
	p.current = final
}

func (l *lane) stopping() bool {
	select {
	case <-l.client.ended:
		return true
	case <-l.exited:
		return true
	default:
		return false
	}
}

// lost reports a plugin that does not come back.
func (l *lane) lost(when string, since time.Duration) {
	if l.stopping() {
		return
	}
	s, _ := l.status() // without it the report says less
	ps, _ := s.plugin(l.host.Process.Pid, l.p.name)
	if ps.Breaker == "open" || ps.Breaker == "half-open" {
		l.world.events.add(l.p.name, "the breaker is %s", ps.Breaker)
		return // a rest that the host promises
	}
	l.fail("G15", l.p.name, "no answer %s; status: %+v", when, ps)
}

// fault does one thing to the plugin whose active process answered active.
func (l *lane) fault(kind string, d decision, active *pending) outcome {
	p := l.p
	tool := func(name string, arguments map[string]any) *pending {
		return l.client.send(p.name, "", history.Read, 0, "tools/call", map[string]any{"name": p.name + "__" + name, "arguments": arguments})
	}
	switch kind {
	case faultKill:
		l.signal(active.pid, syscall.SIGKILL)
		l.awaitEnd(active.pid)
		return outcome{kills: true, known: true}
	case faultStop, faultStopLong:
		for_ := between(20*time.Millisecond, time.Second, d.a)
		if kind == faultStopLong {
			for_ = between(4500*time.Millisecond, 5500*time.Millisecond, d.a)
		}
		l.signal(active.pid, syscall.SIGSTOP)
		if p.alone || p.timeout > 5*time.Second {
			for_ = min(for_, 2*time.Second)
		}
		sleep(for_, l.client.ended)
		l.signal(active.pid, syscall.SIGCONT)
		return outcome{}
	case faultFreeze:
		if p.health == 0 {
			return outcome{} // its calls time out before its health is asked for
		}
		l.signal(active.pid, syscall.SIGSTOP)
		open := tool("echo", map[string]any{"frozen": d.n})
		l.awaitEndWhile(active.pid, func() {
			select {
			case <-open.done: // refused, or answered by another process: nothing asks for the health of an idle one
				l.world.events.add(p.name, "the call to the frozen process has ended: code %d, by process %d; another is sent", open.code, open.pid)
				open = tool("echo", map[string]any{"frozen": d.n})
			default:
			}
		})
		l.client.wait(open)
		return outcome{kills: true, known: true}
	case faultGuard:
		guard, err := strconv.Atoi(statField(active.pid, 1))
		if err != nil || !strings.Contains(commandLine(guard), "__guard") {
			l.world.events.add(p.name, "no guard over %d", active.pid)
			return outcome{}
		}
		l.world.guardLost.Store(time.Now().UnixNano())
		signal(guard, syscall.SIGKILL) // the parent of a process that just answered
		l.awaitEnd(active.pid)
		return outcome{kills: true, known: true}
	case faultExit:
		l.client.wait(tool("crash", map[string]any{"when": pick([]string{"before", "during", "after"}, d.a)}))
		l.awaitEnd(active.pid)
		return outcome{kills: true, known: true}
	case faultDie:
		nonce := l.nonce("d")
		sent := l.client.send(p.name, nonce, history.Once, p.bound(), "tools/call", map[string]any{"name": p.name + "__append", "arguments": map[string]any{
			"file": l.ledger, "nonce": nonce, "die": true,
		}})
		if l.client.wait(sent) && sent.ok() {
			l.fail("I4", p.name, "%s died before it answered, and there is a result: %s", nonce, sent.result)
		}
		l.awaitEnd(active.pid)
		return outcome{kills: true, known: true}
	case faultFrame:
		if !p.framed {
			return outcome{}
		}
		l.client.wait(tool("frame", map[string]any{"when": pick([]string{"zero", "huge", "array", "utf8", "half", "cut", "header"}, d.a)}))
		l.awaitEnd(active.pid)
		return outcome{kills: true, known: true}
	case faultStderr, faultStdout:
		l.client.wait(tool("noise", map[string]any{"where": kind, "bytes": int(d.a * (4 << 20)), "line": pick([]int{20, 200, 5000, 1 << 20}, d.b)}))
		return outcome{}
	case faultNotify:
		l.client.wait(tool("shout", map[string]any{"count": int(d.a * 3000)}))
		return outcome{}
	case faultCancels:
		var sent []*pending
		for range 100 {
			nonce := l.nonce("c")
			sent = append(sent, l.client.send(p.name, nonce, history.Once, p.bound(), "tools/call", map[string]any{"name": p.name + "__append", "arguments": map[string]any{
				"file": l.ledger, "nonce": nonce, "ms": int(d.a * 200),
			}}))
		}
		sleep(between(0, 50*time.Millisecond, d.b), l.client.ended)
		for _, one := range sent {
			l.client.cancel(one)
		}
		l.client.pong(sent)
		return outcome{}
	case faultOverwrite, faultReplace:
		return l.overwrite(kind, d, active)
	}
	return l.swap(kind, d)
}

// nonce names a call of this lane.
func (l *lane) nonce(kind string) string {
	return fmt.Sprintf("%s%d-%s-%d", kind, l.n, l.p.name, l.client.ids.Add(1))
}

// swap is a fault that is a command.
func (l *lane) swap(kind string, d decision) outcome {
	p := l.p
	settle := pick([]string{"0", "0", "100ms"}, d.b)
	upgrade := func(to string, more ...string) []string {
		return append([]string{"upgrade", p.name, "--to", to, "--allow-downgrade", "--allow-breaking", "--settle", settle}, more...)
	}
	switch kind {
	case faultUpgrade:
		to := l.other(d.a)
		return l.rolled(to, l.roll(upgrade(to)...))
	case faultRollback:
		if p.previous == "" || l.calm && p.previous[0] == '9' {
			return outcome{} // nowhere to go, or to a version that loses calls
		}
		o := l.rolled(p.previous, l.roll("rollback", p.name, "--settle", settle))
		if o.to != "" && o.to[0] == '9' {
			o.maybe, o.kills = true, true
		}
		return o
	case faultRestart:
		o := l.rolled("", l.roll("restart", p.name, "--settle", settle))
		return outcome{kills: o.kills}
	case faultBad:
		to := pick(before, d.a)
		if to == badName && !p.framed {
			to = badExit // a server behind a manifest may call itself what it likes
		}
		r := l.roll(upgrade(to, "--timeout", "2s")...)
		if r.ended && r.exit == 0 {
			l.fail("G6", p.name, "the upgrade to the bad version %s succeeds", to)
		}
		return outcome{}
	case faultProbation:
		settle = "2s"
		to := pick([]string{badCrash, badExiting}, d.a)
		l.roll(upgrade(to)...)
		l.see(seenRevert)
		return outcome{to: to, maybe: true, kills: true}
	case faultDrainLimit:
		for range 5 {
			nonce := l.nonce("l")
			l.client.send(p.name, nonce, history.Once, p.bound(), "tools/call", map[string]any{"name": p.name + "__append", "arguments": map[string]any{
				"file": l.ledger, "nonce": nonce, "ms": 1500,
			}})
		}
		to := l.other(d.a)
		return l.rolled(to, l.roll(upgrade(to, "--drain-timeout", "50ms")...))
	case faultCommandEnd:
		to := l.other(d.a)
		cmd := l.world.command(upgrade(to)...)
		if cmd.Start() != nil {
			return outcome{}
		}
		l.midway.Add(1)
		sleep(between(0, 250*time.Millisecond, d.b), l.client.ended)
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		l.awaitOperation()
		l.midway.Add(-1)
		return outcome{to: to, maybe: true}
	}
	panic("soak: no fault " + kind)
}

// targets are the versions that a step may commit.
func (l *lane) targets(d decision) []string {
	switch d.kind {
	case faultUpgrade, faultDrainLimit, faultCommandEnd:
		return []string{l.other(d.a)}
	case faultProbation:
		return []string{badCrash, badExiting}
	case faultRollback:
		return []string{l.p.previous}
	}
	return nil
}

// other is a good version that is not the active one.
func (l *lane) other(x float64) string {
	var others []string
	for _, v := range l.p.good {
		if v != l.p.current {
			others = append(others, v)
		}
	}
	return pick(others, x)
}

// rollResult is how a command ended.
type rollResult struct {
	ended  bool // it said how
	exit   int
	result string
	to     string
	step   string
	text   string
}

// roll runs a command to its end.
func (l *lane) roll(args ...string) rollResult {
	l.midway.Add(1)
	defer l.midway.Add(-1)
	cmd := l.world.command(append(args, "--json")...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		return rollResult{text: err.Error()}
	}
	timer := time.AfterFunc(commandLimit, func() {
		l.fail("G2", l.p.name, "sox-host %s does not end", strings.Join(args, " "))
		_ = cmd.Process.Kill()
	})
	_ = cmd.Wait() // the exit code is in ProcessState
	timer.Stop()
	var report struct {
		Plugins []struct {
			Report struct {
				Result string `json:"result"`
				To     string `json:"to"`
				Step   string `json:"failed_step"`
				Error  string `json:"error"`
			} `json:"report"`
		} `json:"plugins"`
	}
	r := rollResult{exit: cmd.ProcessState.ExitCode()}
	if json.Unmarshal(stdout.Bytes(), &report) == nil && len(report.Plugins) == 1 {
		one := report.Plugins[0].Report
		r.ended, r.result, r.to, r.step, r.text = true, one.Result, one.To, one.Step, one.Error
	} else {
		r.text = strings.TrimSpace(stderr.String())
	}
	l.world.events.add(l.p.name, "%s: exit %d %s %s %s %s", args[0], r.exit, r.result, r.to, r.step, r.text)
	l.command(r.result)
	return r
}

// commandLimit is how long any command may take: its own limits add up to less. 2 min.
const commandLimit = 2 * time.Minute

// rolled turns the result of a command that was to switch to a version into what it did.
func (l *lane) rolled(to string, r rollResult) outcome {
	if r.to == "" { // it does not say: the host has ended, or the command
		r.to = to
	}
	switch {
	case r.ended && r.exit == 0 && r.result != "unchanged":
		return outcome{to: r.to}
	case r.ended && r.result == "unchanged":
		return outcome{}
	case !r.ended:
		return outcome{to: r.to, maybe: true, kills: true}
	}
	if l.calm && !l.stopping() {
		l.fail("I9", l.p.name, "an upgrade to a good version fails at %s: %s", r.step, r.text)
	}
	switch r.step {
	case "cutover", "notify", "drain", "stop", "probation", "":
		return outcome{to: r.to, maybe: true, kills: true}
	}
	return outcome{}
}

// overwrite gives the active version's file other bytes, and lets the plugin restart: it must still be the old ones. Then it puts them back.
func (l *lane) overwrite(kind string, d decision, active *pending) outcome {
	p := l.p
	file := l.world.file(p, active.version)
	before, err := os.ReadFile(file)
	if err != nil || !p.framed {
		return outcome{} // what a manifest names is run from where it lies
	}
	defer func() {
		if err := stamp.WriteProgram(file, before); err != nil {
			l.world.events.add(p.name, "put back: %v", err)
		}
	}()
	if kind == faultReplace {
		err = l.world.stamp(p, active.version, stamp.Options{Extra: 7})
	} else {
		err = os.WriteFile(file, before[:len(before)/2], 0o700)
	}
	if err != nil {
		l.world.events.add(p.name, "%s: %v", kind, err)
		return outcome{}
	}
	if l.calm || d.b < 0.5 {
		return outcome{}
	}
	l.signal(active.pid, syscall.SIGKILL)
	l.awaitEnd(active.pid)
	l.probe(p, 20*time.Second)
	return outcome{kills: true, known: true}
}

// endBound is how long a process may take to end: 30 s, a safety net. The health of a frozen one is judged within seconds,
// but looks at it that come late, on a machine that is busy with something else, judge nothing.
const endBound = 30 * time.Second

// awaitEnd waits for a process to end.
func (l *lane) awaitEnd(pid int) { l.awaitEndWhile(pid, func() {}) }

// awaitEndWhile does something again and again meanwhile.
func (l *lane) awaitEndWhile(pid int, do func()) {
	deadline := time.Now().Add(endBound)
	for ; running(pid); do() {
		if time.Now().After(deadline) {
			l.fail("G8", l.p.name, "process %d does not end", pid)
			return
		}
		select {
		case <-l.client.ended:
			return
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// awaitOperation waits until the host has ended what a command had begun.
func (l *lane) awaitOperation() {
	for deadline := time.Now().Add(commandLimit); time.Now().Before(deadline); {
		s, err := l.status()
		if err != nil || l.stopping() {
			return
		}
		if ps, ok := s.plugin(l.host.Process.Pid, l.p.name); !ok || ps.Operation == "" && len(ps.Draining) == 0 {
			return
		}
		sleep(20*time.Millisecond, l.client.ended)
	}
}

func commandLine(pid int) string {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it may have ended
	return string(bytes.ReplaceAll(raw, []byte{0}, []byte{' '}))
}

// hostLane breaks what is between the client and the host.
func (r *round) hostLane(plan *plan) {
	for {
		d := plan.next()
		sleep(d.pause, r.stop)
		select {
		case <-r.stop:
			return
		case <-r.client.ended:
			return
		default:
		}
		r.world.events.add("host", "round %d %s", r.n, d)
		switch d.kind {
		case faultSlowReader:
			for range 8 {
				p := pick(r.world.plugs, d.b)
				r.client.send(p.name, "", history.Read, 0, "tools/call", map[string]any{"name": p.name + "__big", "arguments": map[string]any{"bytes": int(d.a * (4 << 20))}})
			}
			r.client.pause(between(100*time.Millisecond, 2*time.Second, d.a), r.stop)
		case faultStopHost:
			from := r.rec.Now()
			signal(r.host.Process.Pid, syscall.SIGSTOP)
			sleep(between(100*time.Millisecond, 1500*time.Millisecond, d.a), r.stop)
			signal(r.host.Process.Pid, syscall.SIGCONT)
			r.client.kept(from)
		case faultGarbage:
			for _, line := range []string{
				"", "  ", "\r", "hello", "{", `{"jsonrpc":"2.0"}`, "Content-Length: 5\r", `[]`, `null`, "\xff\xfe", `{"jsonrpc":"2.0","id":{},"method":"ping"}`,
				`{"jsonrpc":"2.0","id":null,"method":"ping"}`, `{"jsonrpc":"2.0","method":"no/such"}`, `{"jsonrpc":"2.0","id":1e9999,"result":{}}`,
				"{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":\"" + strings.Repeat("x", 1<<20) + "\"}", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"never"}}`,
			} {
				r.client.line([]byte(line))
			}
		}
		r.count(d.kind)
	}
}

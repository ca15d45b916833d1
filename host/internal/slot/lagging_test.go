package slot

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Two hosts of one plugins folder do not always run the same build: one may have gone back by itself, or not have
// answered. What brings them together again is tested here.

// beside opens a second slot over the same folder and state, as another host has it, and starts the plugin in both. The
// caller ends it with the function that is returned.
func (e *env) beside() (other *Slot, end func()) {
	e.t.Helper()
	e.up(e.session())
	first := e.slot
	e.slot = New(e.config)
	e.opens++
	e.up(e.session())
	other, e.slot = e.slot, first
	return other, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		other.Close(ctx)
		synctest.Wait()
	}
}

// on runs an operation of another host to its end.
func on(s *Slot, req UpgradeRequest) Report {
	return s.Upgrade(context.Background(), req, nil)
}

// wantRuns fails the test unless this build is committed, and every one of the slots serves it.
func (e *env) wantRuns(version string, slots ...*Slot) {
	e.t.Helper()
	want(e.t, "committed", e.load().Active.Version.String(), version)
	for i, s := range slots {
		want(e.t, []string{"the first", "the other"}[i], s.Version(), version)
	}
}

// undo is what the hosts are asked for when one of them could not follow to the build leave.
func undo(leave string) UpgradeRequest {
	return UpgradeRequest{Leave: leave, Rollback: true, AllowDowngrade: true, AllowBreaking: true}
}

// The follower's crash has taken the commit back already: the first host goes there, and not to the build that crashed.
func TestUndoAfterTheCrashOfAFollower(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		other, end := e.beside()
		defer end()
		e.drop("1.1.0", "")
		canary := e.upgrade(UpgradeRequest{})
		want(t, "canary", canary.Result, ResultUpgraded)
		follower := make(chan Report, 1)
		go func() { follower <- on(other, UpgradeRequest{Adopt: true}) }()
		pass(time.Second)
		e.last().kill()
		want(t, "follower", (<-follower).Result, ResultFailed)
		e.wantRuns("1.0.0", other)
		report := e.upgrade(undo(canary.ToSHA256))
		want(t, "error", report.Error, "")
		want(t, "exit", report.Exit, ExitDone)
		e.wantRuns("1.0.0", e.slot, other)
		want(t, "bad", len(e.load().Bad), 1)
	})
}

// A canary that crashed after its report is where it has to be already, whether or not the build before runs again.
func TestUndoAfterTheCanaryWentBack(t *testing.T) {
	for when, settle := range map[string]time.Duration{"at_once": 0, "started_again": time.Minute} {
		t.Run(when, func(t *testing.T) {
			bubble(t, []string{"1.0.0"}, func(e *env) {
				e.open(Settings{})
				s := e.session()
				e.up(s)
				e.drop("1.1.0", "")
				canary := e.upgrade(UpgradeRequest{})
				want(t, "canary", canary.Result, ResultUpgraded)
				e.last().kill()
				pass(settle)
				report := e.upgrade(undo(canary.ToSHA256))
				want(t, "result", report.Result, ResultUnchanged)
				want(t, "exit", report.Exit, ExitDone)
				e.wantRuns("1.0.0", e.slot)
				want(t, "call", e.call(s, Once, "").by(), "1.0.0")
				want(t, "bad", len(e.load().Bad), 1)
			})
		})
	}
}

// Where nobody has gone back, the way back is a rollback.
func TestUndoOfWhatIsCommitted(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		e.up(e.session())
		e.drop("1.1.0", "")
		canary := e.upgrade(UpgradeRequest{})
		want(t, "result", e.upgrade(undo(canary.ToSHA256)).Result, ResultRolledBack)
		e.wantRuns("1.0.0", e.slot)
	})
}

// parted leaves e's slot on 1.1.0, the other one and the commit on 1.0.0: the other's process crashed in its probation,
// while nobody waited for it any more.
func parted(t *testing.T, fn func(e *env, other *Slot)) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		other, end := e.beside()
		defer end()
		e.drop("1.1.0", "")
		want(t, "canary", e.upgrade(UpgradeRequest{}).Result, ResultUpgraded)
		want(t, "follower", on(other, UpgradeRequest{Adopt: true}).Result, ResultUpgraded)
		pass(5 * time.Second)
		e.last().kill()
		pass(5 * time.Second)
		e.wantRuns("1.0.0", other)
		want(t, "the first", e.slot.Version(), "1.1.0")
		fn(e, other)
	})
}

// Insisting on the build that one host runs commits it, without a new process there, and the others can follow.
func TestWhatALaggingHostRunsIsCommitted(t *testing.T) {
	parted(t, func(e *env, other *Slot) {
		want(t, "a crash is remembered", e.upgrade(UpgradeRequest{}).Exit, ExitRefused)
		want(t, "dry run", e.upgrade(UpgradeRequest{To: "1.1.0", DryRun: true}).Result, ResultPlanned)
		e.wantRuns("1.0.0", other)

		launches := e.launches()
		report := e.upgrade(UpgradeRequest{To: "1.1.0"})
		want(t, "result", report.Result, ResultUpgraded)
		want(t, "from", report.From, "1.0.0")
		want(t, "to", report.To, "1.1.0")
		want(t, "new processes", e.launches(), launches)
		want(t, "once more", e.upgrade(UpgradeRequest{To: "1.1.0"}).Result, ResultUnchanged)
		want(t, "bad", len(e.load().Bad), 0)
		want(t, "the other", on(other, UpgradeRequest{Adopt: true}).Result, ResultUpgraded)
		e.wantRuns("1.1.0", e.slot, other)
		want(t, "rollback", e.upgrade(UpgradeRequest{Rollback: true}).Result, ResultRolledBack)
		want(t, "the other", on(other, UpgradeRequest{Adopt: true}).Result, ResultUpgraded)
		e.wantRuns("1.0.0", e.slot, other)
	})
}

// A rollback to the build that a host runs commits it there.
func TestRollbackToWhatALaggingHostRuns(t *testing.T) {
	parted(t, func(e *env, other *Slot) { // the build before 1.0.0 is now 1.1.0
		report := e.upgrade(UpgradeRequest{Rollback: true})
		want(t, "result", report.Result, ResultRolledBack)
		e.wantRuns("1.1.0", e.slot)
	})
}

// A pin that came meanwhile holds for a commit without a process too.
func TestPinHoldsWhereNothingIsSwapped(t *testing.T) {
	parted(t, func(e *env, other *Slot) {
		e.pin("1.0.0")
		report := e.upgrade(UpgradeRequest{Rollback: true})
		want(t, "exit", report.Exit, ExitRefused)
		e.wantRuns("1.0.0", other)
	})
}

// A host that did not follow an upgrade is no reason to go down with all others: older is what is older than the commit.
func TestALaggingHostBringsNobodyDown(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		other, end := e.beside()
		defer end()
		e.drop("1.1.0", "")
		e.set("1.1.0", func(p *script) { p.tools = defaultTools[:1] })
		want(t, "the first", e.upgrade(UpgradeRequest{AllowBreaking: true, SettleMS: quick}).Result, ResultUpgraded)
		want(t, "down", on(other, UpgradeRequest{To: "1.0.0"}).Exit, ExitRefused)
		e.wantRuns("1.1.0", e.slot)

		e.deleteFile("1.1.0")
		report := on(other, UpgradeRequest{}) // nothing is newer than the commit, and what that breaks has been accepted
		want(t, "error", report.Error, "")
		want(t, "to", report.To, "1.1.0")
		e.wantRuns("1.1.0", e.slot, other)
	})
}

// Hosts that watch a folder move at the same moment. The one that finds the other at it is told so, and gets there with
// another try.
func TestTwoHostsUpgradeAtOnce(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		other, end := e.beside()
		defer end()
		e.drop("1.1.0", "")
		e.set("1.1.0", func(p *script) { p.bootDelay = time.Second })
		first := e.start(UpgradeRequest{})
		synctest.Wait()
		want(t, "the second", on(other, UpgradeRequest{}).Exit, ExitBusy)
		want(t, "the first", (<-first).Result, ResultUpgraded)
		want(t, "another try", on(other, UpgradeRequest{}).Result, ResultUpgraded)
		e.wantRuns("1.1.0", e.slot, other)
	})
}

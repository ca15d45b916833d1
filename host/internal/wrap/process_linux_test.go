package wrap

import (
	"testing"
	"time"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/host/internal/store"
	"github.com/sox-host/sox-host/plugin/wire"
)

// escaped is script with a child in a session of its own, which has no parent any more and holds stdout open.
const escaped = `a=$(setsid sh -c 'sleep 60 >&2 & echo $!'); setsid sleep 60 & echo "pids $$ $! $a"; read line; wait`

// forked is a server that goes to the background, as a daemon does: what was started has ended, and what it has
// started holds its stdin and stdout.
const forked = `(read line; sleep 60) & echo "pids $!"; exit 0`

func TestShell_whose_children_left_its_session_is_gone_after_Stop(t *testing.T) {
	r := newRealRig(t, store.ManifestSpec{Command: "sh", Args: []string{"-c", escaped}})
	r.open(1, wire.RevisionLegacy)
	all := pids(t, string(r.out.until(t, "pids ").Text))
	if len(all) != 3 {
		t.Fatalf("pids %v", all)
	}
	r.b.Stop(process.Ladder{Close: 50 * time.Millisecond, Term: 500 * time.Millisecond})
	for _, pid := range all {
		awaitGone(t, pid)
	}
}

func TestShell_whose_children_left_its_session_is_gone_with_the_host(t *testing.T) {
	killHostOf(t, escaped)
}

func TestServer_that_forks_and_exits_has_ended(t *testing.T) {
	r := newRealRig(t, store.ManifestSpec{Command: "sh", Args: []string{"-c", forked}})
	r.open(1, wire.RevisionLegacy)
	all := pids(t, string(r.out.until(t, "pids ").Text))
	await(t, "the end", r.b.Exited())
	for _, pid := range all {
		awaitGone(t, pid)
	}
	if exit := r.b.Exit(); exit.Code != 0 || exit.Signal != "" {
		t.Errorf("exit %v", exit)
	}
}

package slot

import (
	"context"
	"fmt"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// A plugin may keep state in memory that its next generation wants. Where both sides have the capability
// "snapshot", the old generation is asked for it before the cutover and the candidate gets it. A state that
// cannot be handed over fails an upgrade and a restart, which would lose it silently; a rollback goes on
// without it. A joined process takes part in no hand-over: others may be using it, on either side.

// takeSnapshot asks the old generation for its state.
func (u *upgrade) takeSnapshot(ctx context.Context) error {
	if u.old == nil || u.old.joined != nil || !u.old.ready.Capabilities.Snapshot || u.handover != nil {
		return nil
	}
	ctx, cancel := u.s.startContext(ctx)
	defer cancel()
	snapshot, err := u.old.conn.Call(ctx, rpc.Request{Method: wire.MethodSnapshot})
	if err != nil {
		if u.req.Rollback {
			u.s.log.Warn("rolling back without the state of the present version", "error", err)
			return nil
		}
		return u.fail(StepGate, ExitFailed, fmt.Errorf("snapshot of %s: %w", u.old.build.Version, err))
	}
	u.handover = snapshot
	return nil
}

// handOver gives the candidate the old generation's state.
func (u *upgrade) handOver(ctx context.Context) error {
	if u.new.joined != nil || !u.new.ready.Capabilities.Snapshot {
		return nil
	}
	if err := u.takeSnapshot(ctx); err != nil || u.handover == nil {
		return err
	}
	// The answer of the one is the params of the other: {"state":ANYTHING}.
	_, err := u.new.conn.Call(ctx, rpc.Request{Method: wire.MethodRestore, Params: u.handover})
	switch {
	case err == nil:
		return nil
	case u.req.Rollback:
		u.s.log.Warn("the previous version does not take the state of the present one", "error", err)
		return nil
	}
	return u.fail(StepGate, ExitFailed, fmt.Errorf("restore of the state of %s: %w", u.old.build.Version, err))
}

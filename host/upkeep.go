package host

import (
	"context"
	"time"

	"github.com/sox-host/sox-host/host/internal/store"
)

// keepBuilds is how long a staged build stays that is neither active, previous nor pinned: 30 days, in which somebody
// may want to go back to it and has deleted the file.
const keepBuilds = 30 * 24 * time.Hour

// prune removes builds from the store that nothing has named for a long time. What cannot be removed now is tried again
// with the next upgrade: it costs space and nothing else.
func prune(ctx context.Context, home string) {
	h, err := store.OpenHome(home)
	if err == nil {
		_, _ = h.Prune(ctx, keepBuilds)
	}
}

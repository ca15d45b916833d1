//go:build !linux

package process

import "context"

// ReapOrphans waits for ctx to end. Orphans never come to the host on this
// system.
func (s *Spawner) ReapOrphans(ctx context.Context) { <-ctx.Done() }

package shared

import (
	"context"
	"errors"
	"fmt"

	"github.com/sox-host/sox-host/plugin/socket"
)

// ErrNobodyServes says that there is no process behind an attached socket at the moment.
var ErrNobodyServes = errors.New("nobody serves it: start the plugin with SOX_PLUGIN_SOCKET set to that path")

// Attach connects once to a process that somebody else runs. The Link's first bytes are its ready frame. A folder or a
// user that cannot be trusted is a *socket.FolderError or *socket.PeerError, silence until ctx ends a *SilentError.
func Attach(ctx context.Context, path string) (*Link, error) {
	c, found, err := meet(ctx, path)
	switch found {
	case met:
		return newLink(c, &Link{Path: path, owner: "attached"})
	case nobody:
		err = ErrNobodyServes
	case busy:
		err = errors.New("its process takes no further connection at the moment")
	case leaving:
		err = errors.New("its process ended the connection before it said anything")
	}
	var folder *socket.FolderError
	if errors.As(err, &folder) {
		err = fmt.Errorf("%w; or let it listen in another folder, that only you can write in", err)
	}
	return nil, fmt.Errorf("attach to %s: %w", path, err)
}

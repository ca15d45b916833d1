package slot

import (
	"fmt"
	"sync"

	"github.com/hashicorp/go-hclog"
)

// unasked are answers of a process to ids that nobody sent it: an author who answers "5" for 5 has a call that stays
// open, and should find out why.
type unasked struct {
	log hclog.Logger

	mu    sync.Mutex
	times int
	last  string
}

// maxUnaskedID bounds what is shown of such an id: 64 bytes.
const maxUnaskedID = 64

// note is told the raw id, on the connection's reader. Only the first one goes into the log.
func (u *unasked) note(id []byte) {
	text := string(id[:min(len(id), maxUnaskedID)])
	u.mu.Lock()
	u.times++
	u.last = text
	first := u.times == 1
	u.mu.Unlock()
	if first {
		u.log.Warn("the plugin answered an id that it was never sent: an answer has the request's id exactly as it came, or the call stays open", "request_id", text)
	}
}

func (u *unasked) problems() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.times == 0 {
		return nil
	}
	return []string{fmt.Sprintf("answers to ids that it was never sent: %d, the last one %s; an answer has the request's id exactly as it came", u.times, u.last)}
}

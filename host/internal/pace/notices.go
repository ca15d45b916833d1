package pace

import "time"

const (
	// BurstNotices and NoticesPerSecond are how much of what one process says unasked, as messages, is read as fast as it
	// comes, and how much a second behind that: 2,000 and 10,000, where a message counts as one and every KiB of it as
	// one more. It would otherwise take one core to write them and another to read them. PROTOCOL.md, Limits, has both.
	//
	// The burst is for a tool that reports while it works through a long list. A message costs more than a line: it is
	// taken apart, passed on, and read by the client. With 25,000 a second the median of a neighbour's calls grew by a
	// third on two cores, with 10,000 by a twentieth.
	BurstNotices     = 2_000
	NoticesPerSecond = 10_000
	// longestNoticePause bounds one pause: 200 ms, so that messages of 16 MiB are read at no more than 80 MiB a second.
	longestNoticePause = 200 * time.Millisecond
)

// LeastNoticePause is the shortest pause that is worth a timer: 2 ms, the time of twenty short messages.
const LeastNoticePause = 2 * time.Millisecond

// Notices returns the pace at which what one process says unasked is read.
func Notices() *Pace { return New(BurstNotices, NoticesPerSecond, longestNoticePause) }

// NoticeCost is what a message of so many bytes counts in it.
func NoticeCost(bytes int) int { return 1 + bytes>>10 }

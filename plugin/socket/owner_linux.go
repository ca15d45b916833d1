package socket

import (
	"os"
	"strconv"
	"strings"
	"sync"
)

// asGoodAsRoot says whether the owner of a folder above ours is root, as far as this process can see. Inside a user namespace that maps only some
// users, as sandboxes set up, every other owner is shown as the overflow user: root's own "/" too. There the overflow user has to count as root, or
// nothing could be trusted; an unmapped user who is not root and owns a folder above ours is then not told from root.
func asGoodAsRoot(owner int) bool {
	return owner == 0 || owner == overflowOwner()
}

// overflow is no sync.OnceValue, which every process would make at its start.
var overflow struct {
	once  sync.Once
	owner int // set by once
}

// overflowOwner is the user that unmapped owners are shown as, -1 where all users are mapped.
func overflowOwner() int {
	overflow.once.Do(func() { overflow.owner = readOverflowOwner() })
	return overflow.owner
}

func readOverflowOwner() int {
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil || mapsEveryUser(string(text)) {
		return -1
	}
	id, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err != nil {
		return -1
	}
	uid, err := strconv.Atoi(strings.TrimSpace(string(id)))
	if err != nil {
		return -1
	}
	return uid
}

// mapsEveryUser reads uid_map of user_namespaces(7): lines of first id inside, first id outside, count.
func mapsEveryUser(text string) bool {
	const every = 1<<32 - 1 // all ids but the last, which means "no change" to the system calls
	f := strings.Fields(text)
	if len(f) < 3 || f[0] != "0" {
		return false
	}
	count, err := strconv.ParseUint(f[2], 10, 64)
	return err == nil && count >= every
}

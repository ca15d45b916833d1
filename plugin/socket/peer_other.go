//go:build !linux && !darwin

package socket

func peerOf(int) (uid, pid int, err error) { return 0, 0, ErrUnsupported }

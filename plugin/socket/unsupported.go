//go:build !linux && !darwin

package socket

import (
	"io/fs"
	"os"
)

func checkFolder(string) error  { return ErrUnsupported }
func ensureFolder(string) error { return ErrUnsupported }

func tighten(string, []func(string, fs.FileMode, fs.FileMode)) (Outcome, error) {
	return "", ErrUnsupported
}

func listen(string) (*Listener, error)              { return nil, ErrUnsupported }
func listenLocked(string, *Lock) (*Listener, error) { return nil, ErrUnsupported }
func fromDescriptor(int) (*Listener, error)         { return nil, ErrUnsupported }
func listenOnFile(*os.File) (*Listener, error)      { return nil, ErrUnsupported }
func adoptFile(int, string) (*os.File, error)       { return nil, ErrUnsupported }

func tryLock(string) (*Lock, error)        { return nil, ErrUnsupported }
func held(string) (Holder, bool, error)    { return Holder{}, false, ErrUnsupported }
func adoptLock(int, string) (*Lock, error) { return nil, ErrUnsupported }
func verifyNamed(*os.File, string) error   { return ErrUnsupported }
func unlockFile(*os.File)                  {}
func readProcess(int) (process, error)     { return process{}, ErrUnsupported }
func processExists(int) bool               { return true }
func bootID() string                       { return "" }

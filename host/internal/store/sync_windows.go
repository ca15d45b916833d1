package store

import "os"

// syncFile does nothing: Windows flushes only through a handle for writing.
func syncFile(*os.File) error { return nil }

// syncFolder does nothing: Windows has no flush for folders.
func syncFolder(string) error { return nil }

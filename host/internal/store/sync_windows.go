package store

import "os"

// syncFile does nothing: Windows flushes only through a handle for writing.
func syncFile(*os.File) error { return nil }

// SyncFolder does nothing: Windows has no flush for folders.
func SyncFolder(string) error { return nil }

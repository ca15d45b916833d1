// Package store owns what lies on disk: the plugins folder and the verdict on
// each of its entries, the private staged copies that are run, and what was
// decided about each plugin.
//
//	plugins/NAME_vX.Y.Z      what the user drops        Scan, Choose
//	store/SHA256/            the bytes that run         Home.Stage, Lookup, Verify
//	state/DIGEST/NAME.json   what was decided           State.Load, Update, Recover
//	state/DIGEST/catalog/    lists of stopped plugins   State.LoadCatalog, SaveCatalog
//
// A long-running host and short commands use one home at the same time. Every
// method is safe for concurrent use by goroutines and by processes: files appear
// by rename, states are changed under a kernel lock, staged builds are named by
// their hash. A process killed at any step leaves the old or the new state,
// whole; what may stay behind is a temporary file that a later call removes.
//
// # Trust
//
// Folders must be owned by the user and not writable by others. A folder is
// opened once, judged through its descriptor and read through that descriptor.
// The plugins folder and the home itself may be links; store, state, run and logs
// may not. Nothing is ever chmod-ed or deleted to make a check pass: a
// *FolderError says what to run. The checks need numeric owners and mode bits, so
// on Windows they fail with an error that says so.
//
// # Choices where the words leave room
//
//   - One version in two files is ambiguous only within one class: files named for
//     this OS_ARCH come first, files without OS_ARCH serve when there is none.
//     Files with equal bytes are never ambiguous.
//   - A version named together with its build metadata means exactly that file.
//   - Constraints follow go-version's grammar, so a missing part is zero: "1.2" is
//     exactly 1.2.0. "< 2.0.0" never lets 2.0.0-rc1 in unless a prerelease of
//     2.0.0 is named.
//   - A newer file that cannot run makes Choose fail, so that an upgrade says why
//     nothing happened; with SkipUnready (first start) it is passed over. A file
//     for another OS or architecture never stands in the way.
//   - A settling file is one whose modification time is less than 500 ms ago.
//   - Manifest paths stay as written; Resolved makes them absolute.
//
// # Simpler designs that failed
//
// Writing a state in place lost it on a kill between truncate and write. Hashing a
// file and then running it by its path ran other bytes in 28 of 62 launches.
// Renaming a freshly written binary does not avoid ETXTBSY: a child forked while
// the file was open for writing still holds it, hence syscall.ForkLock in stage.go.
package store

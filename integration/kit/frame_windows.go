package main

// rawWrite has no socket to write to.
func rawWrite([]byte) bool { return false }

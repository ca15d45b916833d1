//go:build !faultpoints

package slot

// faultPoint does nothing in this build. With the build tag faultpoints it can end the host at a named step.
func faultPoint(string) {}

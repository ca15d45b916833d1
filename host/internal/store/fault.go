package store

// faultPoint is called at every step after which a kill or a failure would leave
// something on disk. It is nil in production; tests set it before any other use
// of the package.
var faultPoint func(step string)

func step(name string) {
	if faultPoint != nil {
		faultPoint(name)
	}
}

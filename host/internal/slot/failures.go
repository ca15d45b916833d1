package slot

import (
	"fmt"

	"github.com/sox-host/sox-host/plugin/wire"
)

// failures are requests to be failed once Slot.mu is released.
type failures []failure

type failure struct {
	r       *Request
	err     *wire.Error
	version string
}

func (f failures) fail() {
	for _, one := range f {
		one.r.fail(one.err, one.version)
	}
}

// errorf returns an error of ours about this slot.
func (s *Slot) errorf(code wire.Code, data wire.ErrorData, format string, args ...any) *wire.Error {
	data.Plugin = s.name
	return wire.NewError(code, fmt.Sprintf(format, args...), data)
}

package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sox-host/sox-host/plugin/wire"
)

// Error is a JSON-RPC error. A handler that returns one (also wrapped) decides what the caller sees, code included; any
// other error becomes CodeInternal with its text, or for a tool a result marked as an error.
type Error = wire.Error

// Code is the number of an Error.
type Code = wire.Code

// The codes a handler may want to return itself. The host owns the others; see plugin/wire.
const (
	CodeInvalidParams = wire.CodeInvalidParams
	CodeInternal      = wire.CodeInternal
	CodeBusy          = wire.CodeBusy
)

// Errorf returns an error with a code and a message that a person or a model can act on. Codes of your own are best
// positive: JSON-RPC, MCP and sox-host share the negative ones. %w is understood: the cause can be found with errors.Is
// on this side, and does not travel.
func Errorf(code Code, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &codedError{wire: &wire.Error{Code: code, Message: err.Error()}, cause: errors.Unwrap(err)}
}

// InvalidParams returns an error that says what is wrong with the params.
func InvalidParams(format string, args ...any) error {
	return Errorf(CodeInvalidParams, format, args...)
}

// codedError carries a cause beside the error that travels.
type codedError struct {
	wire  *wire.Error
	cause error
}

func (e *codedError) Error() string { return e.wire.Error() }
func (e *codedError) Unwrap() []error {
	if e.cause == nil {
		return []error{e.wire}
	}
	return []error{e.wire, e.cause}
}

// Why a request's context ended. context.Cause gives them to handlers that want to know.
var (
	ErrCancelled     = errors.New("the request was cancelled")
	ErrDeadline      = error(deadlineError{}) // also a context.DeadlineExceeded
	ErrShuttingDown  = errors.New("the plugin is shutting down")
	ErrSessionClosed = errors.New("the session is closed")
	ErrDisconnected  = errors.New("the host is gone")
)

type deadlineError struct{}

func (deadlineError) Error() string { return "the deadline of the request passed" }
func (deadlineError) Unwrap() error { return context.DeadlineExceeded }

// fault returns an error of this plugin with the usual data.
func (p *Plugin) fault(code wire.Code, executed wire.Executed, format string, args ...any) *wire.Error {
	return wire.NewError(code, fmt.Sprintf(format, args...), wire.ErrorData{Plugin: p.name, Version: p.version, Executed: executed})
}

// answerFor turns the error of a handler into the error that travels. started says whether the handler ran at all.
func (p *Plugin) answerFor(ctx context.Context, method string, err error, started bool) *wire.Error {
	if cause := context.Cause(ctx); cause != nil && (errors.Is(err, cause) || errors.Is(err, ctx.Err())) {
		return p.interrupted(method, cause, started)
	}
	var e *wire.Error
	if errors.As(err, &e) {
		if len(e.Data) > 0 {
			return e
		}
		// Every error that sox-host makes has data; one that an author made from a code alone gets it here.
		data, merr := json.Marshal(wire.ErrorData{Code: e.Code.Info().Name, Plugin: p.name, Version: p.version, Executed: e.Code.Info().Executed})
		if merr != nil {
			return e
		}
		return &wire.Error{Code: e.Code, Message: e.Message, Data: data}
	}
	return p.fault(wire.CodeInternal, wire.ExecutedYes, "%s", err.Error())
}

// interrupted is the answer of a request whose context ended with cause.
func (p *Plugin) interrupted(method string, cause error, started bool) *wire.Error {
	executed, tail := wire.ExecutedNo, "it never started"
	if started {
		executed, tail = wire.ExecutedUnknown, "it may have run in part"
	}
	switch {
	case errors.Is(cause, context.DeadlineExceeded):
		return p.fault(wire.CodeDeadlineExceeded, executed, "%s: the deadline passed; %s", method, tail)
	case errors.Is(cause, ErrShuttingDown) && started:
		return p.fault(wire.CodeOutcomeUnknown, executed, "%s: the plugin was stopped while it ran; %s", method, tail)
	case errors.Is(cause, ErrShuttingDown):
		return p.fault(wire.CodeShuttingDown, executed, "%s: the plugin is shutting down; %s", method, tail)
	}
	return p.fault(wire.CodeCancelled, executed, "%s: cancelled; %s", method, tail)
}

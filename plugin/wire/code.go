package wire

import (
	"encoding/json"
	"fmt"
)

// Code is the number of a JSON-RPC error.
type Code int

// The codes of JSON-RPC 2.0 §5.1.
const (
	CodeParseError     Code = -32700
	CodeInvalidRequest Code = -32600
	CodeMethodNotFound Code = -32601
	CodeInvalidParams  Code = -32602
	CodeInternal       Code = -32603
)

// The codes of sox-host, all in -32000..-32019: the range that MCP 2026-07-28 leaves to implementations.
// -32002 is not used, since MCP up to 2025-11-25 means "resource not found" by it.
const (
	CodeUnavailable      Code = -32001
	CodeOutcomeUnknown   Code = -32003
	CodeBusy             Code = -32004
	CodeDeadlineExceeded Code = -32005
	CodeResponseTooLarge Code = -32006
	CodeReadOnly         Code = -32007
	CodeCancelled        Code = -32008
	CodeShuttingDown     Code = -32009
)

// The codes that MCP owns and the gateway answers with or translates.
const (
	CodeResourceNotFound   Code = -32002 // MCP up to 2025-11-25
	CodeMissingCapability  Code = -32021 // MCP 2026-07-28: a needed client capability was not declared
	CodeUnsupportedVersion Code = -32022 // MCP 2026-07-28: unsupported protocol version
	CodeURLElicitation     Code = -32042 // MCP 2025-11-25: URL elicitation required
)

// Executed says whether the handler of a request ran: the value of data.executed.
type Executed string

const (
	ExecutedNo      Executed = "no"      // it never started, and never will
	ExecutedUnknown Executed = "unknown" // it may have run, wholly or in part
	ExecutedYes     Executed = "yes"     // it ran to its end; only its answer could not be delivered
)

// CodeInfo describes one code: one row of the table that the README and PROTOCOL.md quote.
type CodeInfo struct {
	Code     Code
	Name     string   // data.code
	Meaning  string   // one phrase
	Executed Executed // whether the request may have run
	Retry    string   // what the caller may do
}

// codes is the table of every code that sox-host itself gives to a client. A golden test pins it: a number
// is never given a second meaning.
var codes = []CodeInfo{
	{CodeParseError, "E_PARSE", "the line or frame is not valid JSON in UTF-8", ExecutedNo, "correct the message"},
	{CodeInvalidRequest, "E_INVALID_REQUEST", "valid JSON, but not a JSON-RPC 2.0 request that can be served now", ExecutedNo, "correct the message"},
	{CodeMethodNotFound, "E_METHOD_NOT_FOUND", "no plugin serves this method", ExecutedNo, "correct the method, or install the plugin that serves it"},
	{CodeInvalidParams, "E_INVALID_PARAMS", "params are missing, malformed or name something unknown", ExecutedNo, "correct the params"},
	{CodeInternal, "E_INTERNAL", "a fault in the plugin or in sox-host", ExecutedUnknown, "read the log before trying again"},
	{CodeUnavailable, "E_UNAVAILABLE", "the plugin could not be reached in time", ExecutedNo, "safe to retry"},
	{CodeOutcomeUnknown, "E_OUTCOME_UNKNOWN", "the plugin ended after it took the request", ExecutedUnknown, "only if repeating it is harmless"},
	{CodeBusy, "E_BUSY", "the plugin's queue is full", ExecutedNo, "safe to retry after retry_after_ms"},
	{CodeDeadlineExceeded, "E_DEADLINE", "the deadline passed before an answer came", ExecutedUnknown, "only if repeating it is harmless"},
	{CodeResponseTooLarge, "E_RESPONSE_TOO_LARGE", "the answer exceeds the size limit", ExecutedYes, "ask for less"},
	{CodeReadOnly, "E_READ_ONLY", "a read-only lock refuses writes", ExecutedNo, "lift the lock where the host or plugin was started"},
	{CodeCancelled, "E_CANCELLED", "the client cancelled the request", ExecutedUnknown, "the caller decides"},
	{CodeShuttingDown, "E_SHUTTING_DOWN", "the host is shutting down", ExecutedNo, "safe to retry on a new host"},
}

// Codes returns the table of codes, in its documented order.
func Codes() []CodeInfo { return append([]CodeInfo(nil), codes...) }

// Info returns the table's row for c; an unknown code gets the row of CodeInternal with its own number.
func (c Code) Info() CodeInfo {
	fallback := CodeInfo{}
	for _, row := range codes {
		if row.Code == c {
			return row
		}
		if row.Code == CodeInternal {
			fallback = row
		}
	}
	fallback.Code = c
	return fallback
}

func (c Code) String() string { return fmt.Sprintf("%s (%d)", c.Info().Name, int(c)) }

// Error is a JSON-RPC error object. Message is one sentence that a person or a model can act on.
type Error struct {
	Code    Code            `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *Error) Error() string { return fmt.Sprintf("%s [%d]", e.Message, int(e.Code)) }

// ErrorData is the data of every error that sox-host makes.
type ErrorData struct {
	Code         string   `json:"code"`
	Plugin       string   `json:"plugin,omitempty"`
	Version      string   `json:"version,omitempty"`
	Generation   uint64   `json:"generation,omitempty"`
	Executed     Executed `json:"executed"`
	RetryAfterMS int64    `json:"retry_after_ms,omitempty"`
	Detail       string   `json:"detail,omitempty"`
}

// NewError returns an error with data. An empty data.Code or data.Executed is taken from the table.
func NewError(c Code, message string, data ErrorData) *Error {
	info := c.Info()
	if data.Code == "" {
		data.Code = info.Name
	}
	if data.Executed == "" {
		data.Executed = info.Executed
	}
	raw, err := json.Marshal(data)
	if err != nil { // strings and integers always marshal
		raw = nil
	}
	return &Error{Code: c, Message: message, Data: raw}
}

// Errorf returns an error without data.
func Errorf(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Message: fmt.Sprintf(format, args...)}
}

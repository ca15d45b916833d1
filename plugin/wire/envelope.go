package wire

import (
	"bytes"
	"fmt"
)

// Kind says what an envelope is.
type Kind uint8

const (
	Invalid      Kind = iota // not classified
	Request                  // method and id
	Notification             // method without id, or with "id":null, which no answer could name
	Response                 // id and a result or an error
	Ack                      // {"ack":ID}: a request was accepted and its handler is about to run
)

func (k Kind) String() string {
	return [...]string{"invalid", "request", "notification", "response", "ack"}[k]
}

// Span is a half-open range of an envelope's bytes; the zero value means absent.
type Span struct{ Start, End int }

// Present reports whether the member was there.
func (s Span) Present() bool { return s.End > 0 }

// Envelope is one scanned JSON-RPC object: its bytes, and where the members stand that a relay needs. All
// accessors return slices of Raw, nil when absent; string members keep their quotes and escapes. Scan fills
// it; the zero value is an empty envelope. An Envelope may be reused for the next Scan. Not safe for
// concurrent use while it is being scanned.
type Envelope struct {
	Raw  []byte
	Kind Kind

	id, method, params, result, errObj Span
	session, timeout, ack              Span

	// One level into params.
	name, uri, arguments, meta, requestID, token Span
	// One level into params._meta.
	metaToken, metaProtocol, metaCapabilities, metaClient, metaLogLevel Span
	// One level into result.
	resultType, inputRequests, resultMeta Span

	nullID bool
}

func (e *Envelope) at(s Span) []byte {
	if s.End == 0 {
		return nil
	}
	return e.Raw[s.Start:s.End:s.End]
}

// ID is the raw id: a string with its quotes, or a number with its digits.
func (e *Envelope) ID() []byte { return e.at(e.id) }

// NullID reports an id of null, which makes a request a notification of unknown kind.
func (e *Envelope) NullID() bool { return e.nullID }

// RawMethod is the method with its quotes.
func (e *Envelope) RawMethod() []byte { return e.at(e.method) }

// Method is the method without quotes, escapes resolved. It allocates only when there are escapes.
func (e *Envelope) Method() []byte { return Unquote(e.at(e.method)) }

// Params, Result and Error are the raw values.
func (e *Envelope) Params() []byte { return e.at(e.params) }
func (e *Envelope) Result() []byte { return e.at(e.result) }
func (e *Envelope) Error() []byte  { return e.at(e.errObj) }

// Session is the host's session number; absent or malformed is 0, the session that opens by itself.
func (e *Envelope) Session() uint64 { n, _ := ParseUint(e.at(e.session)); return n }

// TimeoutMS is for how long the answer is still wanted, in milliseconds; 0 means no limit was given.
func (e *Envelope) TimeoutMS() uint64 { n, _ := ParseUint(e.at(e.timeout)); return n }

// WantsAck reports a request with "ack":true.
func (e *Envelope) WantsAck() bool { return e.Kind == Request && string(e.at(e.ack)) == "true" }

// AckID is the id that an envelope of kind Ack acknowledges.
func (e *Envelope) AckID() []byte { return e.at(e.ack) }

// Name, URI, Arguments, Meta, RequestID and ProgressToken are members of params. ProgressToken is the
// member of notifications/progress; a request's own token is MetaProgressToken.
func (e *Envelope) Name() []byte          { return e.at(e.name) }
func (e *Envelope) URI() []byte           { return e.at(e.uri) }
func (e *Envelope) Arguments() []byte     { return e.at(e.arguments) }
func (e *Envelope) Meta() []byte          { return e.at(e.meta) }
func (e *Envelope) RequestID() []byte     { return e.at(e.requestID) }
func (e *Envelope) ProgressToken() []byte { return e.at(e.token) }

// The members of params._meta that route a request (MCP 2026-07-28, Base Protocol, _meta).
func (e *Envelope) MetaProgressToken() []byte      { return e.at(e.metaToken) }
func (e *Envelope) MetaProtocolVersion() []byte    { return e.at(e.metaProtocol) }
func (e *Envelope) MetaClientCapabilities() []byte { return e.at(e.metaCapabilities) }
func (e *Envelope) MetaClientInfo() []byte         { return e.at(e.metaClient) }
func (e *Envelope) MetaLogLevel() []byte           { return e.at(e.metaLogLevel) }

// ResultType, InputRequests and ResultMeta are members of a result that is an object (MCP 2026-07-28, Results). A
// relay that had to search every result for them would read it once more.
func (e *Envelope) ResultType() []byte    { return e.at(e.resultType) }
func (e *Envelope) InputRequests() []byte { return e.at(e.inputRequests) }
func (e *Envelope) ResultMeta() []byte    { return e.at(e.resultMeta) }

// EnvelopeError says why bytes are not an envelope.
type EnvelopeError struct {
	Code   Code   // CodeParseError for bad JSON or UTF-8, CodeInvalidRequest for a wrong shape
	Reason string // one phrase, never quoting the input
	Offset int    // bytes from the start
	Batch  bool   // the value is an array, which only MCP 2025-03-26 knows as a batch

	// ID is a copy of the raw id if the sender waits for an answer to it, else nil. The id of what was
	// meant as a response is in ResponseID instead: answering it would name one of the receiver's own ids,
	// and its sender may have a request open under the same.
	ID         []byte
	ResponseID []byte
}

func (e *EnvelopeError) Error() string {
	return fmt.Sprintf("envelope: %s at byte %d", e.Reason, e.Offset)
}

// Scan validates data as one JSON-RPC 2.0 envelope and fills env with the places of its members. It checks
// syntax, UTF-8, nesting (MaxDepth) and that no member the gateway routes by appears twice, since two
// parsers that read one message differently are a known hole. The error is an *EnvelopeError. env keeps
// data; nothing is copied, and valid input allocates only for member names written with escapes.
//
// Two common slips of senders are read as absence: "params":null, and "error":null beside a result.
func Scan(data []byte, env *Envelope) error {
	*env = Envelope{}
	s := scanner{data: data}
	if fault := s.scan(env); fault != nil {
		return s.report(fault, env)
	}
	return nil
}

// scan returns the first fault of syntax, else the first of shape.
func (s *scanner) scan(env *Envelope) *fault {
	if f := s.envelope(env); f != nil {
		return f
	}
	if s.shape != nil {
		s.pos = s.where
		return s.shape
	}
	if f := env.classify(); f != nil {
		return f
	}
	if !s.version && env.Kind != Ack {
		env.Kind = Invalid
		return faultVersion
	}
	return nil
}

// report describes a fault, with whatever id the sender can be answered by.
func (s *scanner) report(f *fault, env *Envelope) *EnvelopeError {
	err := &EnvelopeError{Code: CodeParseError, Reason: f.reason, Offset: s.pos, Batch: f == faultBatch}
	id, answers, calls := env.ID(), env.result.Present() || env.errObj.Present(), env.method.Present()
	if f.shape {
		// The JSON is valid and all of it was seen: without a result or an error, it wants an answer.
		err.Code = CodeInvalidRequest
		calls = calls || !answers
	} else {
		var rest salvager
		rest.feed(s.data)
		answers, calls = answers || rest.kind() == Response, calls || rest.kind() == Request
		if at := skipSpace(s.data, env.id.End); id != nil && (at == len(s.data) || s.data[at] != ',' && s.data[at] != '}') {
			id = nil // 0 of 04, or 1 of a cut 12
			s.badID = true
		}
		if id == nil && !s.badID {
			id = rest.result()
		}
	}
	switch {
	case answers && !calls:
		err.ResponseID = bytes.Clone(id)
	case calls && !answers:
		err.ID = bytes.Clone(id)
	}
	return err
}

// classify decides the kind from the members that are there.
func (e *Envelope) classify() *fault {
	if string(e.Params()) == "null" {
		e.params = Span{}
	}
	if e.result.Present() && string(e.Error()) == "null" {
		e.errObj = Span{}
	}
	switch {
	case e.method.Present():
		if e.Raw[e.method.Start] != '"' {
			return faultMethod
		}
		if e.result.Present() || e.errObj.Present() {
			return faultMixed
		}
		if p := e.Params(); p != nil && p[0] != '{' && p[0] != '[' {
			return faultParams
		}
		e.Kind = Notification
		if e.id.Present() {
			e.Kind = Request
		}
	case e.result.Present() && e.errObj.Present():
		return faultBoth
	case e.result.Present() || e.errObj.Present():
		if !e.id.Present() {
			return faultNoID
		}
		if obj := e.Error(); obj != nil && obj[0] != '{' {
			return faultError
		}
		e.Kind = Response
	case e.ack.Present() && !e.id.Present():
		if !ValidID(e.AckID()) {
			return faultID
		}
		e.Kind = Ack
	default:
		return faultNothing
	}
	return nil
}

package wire

import (
	"bytes"
	"encoding/json"
)

// Envelopes are rebuilt around the bytes of params and results, never decoded and encoded again: unknown
// members, digits and key order survive a relay.

// Edit replaces the bytes of one span; an empty span inserts.
type Edit struct {
	Span
	Text []byte
}

// AppendEdited appends raw[within] with edits applied. Edits must be in order, inside within, and not overlap.
func AppendEdited(dst, raw []byte, within Span, edits ...Edit) []byte {
	at := within.Start
	for _, e := range edits {
		dst = append(dst, raw[at:e.Start]...)
		dst = append(dst, e.Text...)
		at = e.End
	}
	return append(dst, raw[at:within.End]...)
}

// The spans that a relay rewrites; zero when absent.
func (e *Envelope) ParamsSpan() Span            { return e.params }
func (e *Envelope) NameSpan() Span              { return e.name }
func (e *Envelope) URISpan() Span               { return e.uri }
func (e *Envelope) MetaSpan() Span              { return e.meta }
func (e *Envelope) ResultSpan() Span            { return e.result }
func (e *Envelope) ResultMetaSpan() Span        { return e.resultMeta }
func (e *Envelope) RequestIDSpan() Span         { return e.requestID }
func (e *Envelope) ProgressTokenSpan() Span     { return e.token }
func (e *Envelope) MetaProgressTokenSpan() Span { return e.metaToken }

// Head is what a host-made request carries besides method and params.
type Head struct {
	ID        uint64 // minted by the sender, unique per connection
	Session   uint64 // 0 is left out
	TimeoutMS uint64 // 0 is left out
	Ack       bool   // ask for {"ack":ID} before the handler runs
}

// AppendRequestHead appends a request up to and including `"method":M` (method is raw, with quotes). The
// caller appends `,"params":…` if there are any, and the closing '}'.
func AppendRequestHead(dst []byte, h Head, method []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = AppendUint(dst, h.ID)
	if h.Session != 0 {
		dst = append(dst, `,"session":`...)
		dst = AppendUint(dst, h.Session)
	}
	if h.TimeoutMS != 0 {
		dst = append(dst, `,"timeout_ms":`...)
		dst = AppendUint(dst, h.TimeoutMS)
	}
	if h.Ack {
		dst = append(dst, `,"ack":true`...)
	}
	dst = append(dst, `,"method":`...)
	return append(dst, method...)
}

// AppendRequest appends a whole request; params nil leaves them out.
func AppendRequest(dst []byte, h Head, method string, params []byte) []byte {
	dst = AppendRequestHead(dst, h, AppendQuote(nil, method))
	return appendParams(dst, params)
}

// AppendNotification appends a notification; session 0 and params nil are left out.
func AppendNotification(dst []byte, session uint64, method string, params []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0"`...)
	if session != 0 {
		dst = append(dst, `,"session":`...)
		dst = AppendUint(dst, session)
	}
	dst = append(dst, `,"method":`...)
	dst = AppendQuote(dst, method)
	return appendParams(dst, params)
}

func appendParams(dst, params []byte) []byte {
	if len(params) > 0 {
		dst = append(dst, `,"params":`...)
		dst = append(dst, params...)
	}
	return append(dst, '}')
}

// AppendResult appends a response with a raw id and a raw result.
func AppendResult(dst, id, result []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	dst = append(dst, `,"result":`...)
	dst = append(dst, result...)
	return append(dst, '}')
}

// AppendRawError appends a response with a raw id and a raw error object.
func AppendRawError(dst, id, errObj []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	dst = append(dst, `,"error":`...)
	dst = append(dst, errObj...)
	return append(dst, '}')
}

// AppendError appends a response with a raw id and an error of ours.
func AppendError(dst, id []byte, e *Error) []byte {
	if !ValidValue(e.Data) { // absent, or a bug of the caller: the code and message still go out
		e = &Error{Code: e.Code, Message: e.Message}
	}
	obj, _ := json.Marshal(e) // a number, a string and valid JSON always marshal
	return AppendRawError(dst, id, obj)
}

// AppendAck appends {"ack":ID}.
func AppendAck(dst, id []byte) []byte {
	dst = append(dst, `{"ack":`...)
	dst = append(dst, id...)
	return append(dst, '}')
}

// HasNewline reports whether raw, a valid JSON value, has line ends between its tokens, which would break a
// line in two.
func HasNewline(raw []byte) bool {
	return bytes.IndexByte(raw, '\n') >= 0 || bytes.IndexByte(raw, '\r') >= 0
}

// AppendCompact appends raw, a valid JSON value, without white space between tokens.
func AppendCompact(dst, raw []byte) []byte {
	for i := 0; i < len(raw); {
		switch c := raw[i]; c {
		case ' ', '\t', '\n', '\r':
			i++
		case '"':
			end := stringEnd(raw, i)
			dst = append(dst, raw[i:end]...)
			i = end
		default:
			dst = append(dst, c)
			i++
		}
	}
	return dst
}

// stringEnd returns the index behind the string that starts at i, in validated JSON.
func stringEnd(raw []byte, i int) int {
	for i++; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(raw)
}

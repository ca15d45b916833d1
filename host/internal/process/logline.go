package process

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/hashicorp/go-hclog"
)

// maxLogFields bounds the fields of one record. A line is at most
// MaxLineBytes, which could hold a thousand; nobody reads that many.
const maxLogFields = 64

// LogLine is a structured log record that a plugin printed. All its strings
// have gone through Sanitize.
type LogLine struct {
	Level   hclog.Level // NoLevel if the record has none that is known
	Message string
	Module  string    // hclog's @module; empty otherwise
	Time    time.Time // zero if there is none or it cannot be read
	Fields  []LogField
}

// LogField is one more member of a record. The value of a string is its text,
// that of anything else is its JSON.
type LogField struct {
	Key   string
	Value string
}

// ParseLine recognises a record in the JSON form of hclog (@level, @message,
// @module, @timestamp) or of slog and its likes (level, msg, time). It reports
// false for anything else, which is then text.
//
// Members of an unexpected type are taken as they are: no input makes it fail,
// use more than a small multiple of the line's size, or drop the text. A line
// that was cut keeps its level and the beginning of its message.
func ParseLine(text []byte) (LogLine, bool) {
	if trimmed := bytes.TrimLeft(text, " \t"); len(trimmed) == 0 || trimmed[0] != '{' {
		return LogLine{}, false
	}
	record := logRecord{line: LogLine{Level: hclog.NoLevel}}
	decoder := jsontext.NewDecoder(bytes.NewBuffer(text),
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	cut, err := record.read(decoder, text)
	if err != nil || !record.recognised(cut) {
		return LogLine{}, false
	}
	if cut && !record.hasMessage {
		record.line.Message = Sanitize(text)
	}
	return record.line, true
}

// logRecord collects the members of a record.
type logRecord struct {
	line       LogLine
	hasLevel   bool
	hasMessage bool
	hclog      bool // a member with an at sign was seen
}

// recognised reports whether the members make a log record. Of a cut one the
// level is enough, because it usually comes first.
func (r *logRecord) recognised(cut bool) bool {
	if r.hclog || cut {
		return r.hasLevel || r.hasMessage && r.hclog
	}
	return r.hasLevel && r.hasMessage
}

// read reads the object that text is. It reports whether text ends before the
// object does, and an error if it is not one object and nothing else.
func (r *logRecord) read(decoder *jsontext.Decoder, text []byte) (cut bool, _ error) {
	if _, err := decoder.ReadToken(); err != nil {
		return false, err
	}
	for decoder.PeekKind() == '"' {
		name, err := decoder.ReadToken()
		if err != nil {
			return incomplete(err)
		}
		key := name.String()
		valueAt := decoder.InputOffset()
		value, err := decoder.ReadValue()
		if err != nil {
			if cut, err = incomplete(err); cut {
				r.member(key, cutString(text[valueAt:]))
			}
			return cut, err
		}
		r.member(key, value)
	}
	if _, err := decoder.ReadToken(); err != nil {
		return incomplete(err)
	}
	if _, err := decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return false, errors.New("text after the object")
	}
	return false, nil
}

// incomplete tells an end of input from invalid JSON.
func incomplete(err error) (bool, error) {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}

// cutString returns the beginning of a string value as a whole JSON string, or
// nil if rest, which begins after a member's name, holds no string.
func cutString(rest []byte) jsontext.Value {
	rest = bytes.TrimLeft(rest, ": \t")
	if len(rest) == 0 || rest[0] != '"' {
		return nil
	}
	// An escape may have been cut: at most eleven bytes, for a pair of
	// surrogates.
	for range 12 {
		whole := append(bytes.Clone(rest), '"')
		if _, err := jsontext.AppendUnquote(nil, whole); err == nil || len(rest) == 1 {
			return whole
		}
		rest = rest[:len(rest)-1]
	}
	return nil
}

// member files one member of the object. A nil value, one that was cut and is
// no string, is left out.
func (r *logRecord) member(key string, value jsontext.Value) {
	if value == nil {
		return
	}
	text := memberText(value)
	switch key {
	case "@level", "level":
		r.hasLevel = true
		r.line.Level = parseLevel(text)
	case "@message", "msg", "message":
		r.hasMessage = true
		r.line.Message = text
	case "@module":
		r.line.Module = text
	case "@timestamp", "time":
		// What cannot be read is left out; the host has a clock of its own.
		r.line.Time, _ = time.Parse(time.RFC3339Nano, text)
	default:
		if len(r.line.Fields) < maxLogFields {
			r.line.Fields = append(r.line.Fields, LogField{Key: Sanitize([]byte(key)), Value: text})
		}
		return
	}
	r.hclog = r.hclog || key[0] == '@'
}

// memberText returns the text of a string, or the JSON of another value.
func memberText(value jsontext.Value) string {
	if value.Kind() == '"' {
		// An error is about escapes of lone surrogates; what could be
		// unquoted has been.
		text, _ := jsontext.AppendUnquote(nil, value)
		return Sanitize(text)
	}
	return Sanitize(value)
}

// parseLevel reads a level as common loggers write it, in any case, or its
// number of those that write numbers. slog writes levels between two names as
// "INFO+2".
func parseLevel(text string) hclog.Level {
	name := strings.ToLower(text)
	if end := strings.IndexAny(name, "+-"); end > 0 {
		name = name[:end]
	}
	switch name {
	case "trace", "10":
		return hclog.Trace
	case "debug", "20":
		return hclog.Debug
	case "info", "30", "notice":
		return hclog.Info
	case "warn", "40", "warning":
		return hclog.Warn
	case "error", "50", "err", "fatal", "60", "critical", "panic":
		return hclog.Error
	}
	return hclog.NoLevel
}

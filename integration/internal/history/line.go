package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Line is one JSON-RPC message.
type Line struct {
	ID     json.RawMessage // nil if absent
	Method string          // "" for an answer
	Params json.RawMessage
	Result json.RawMessage
	Error  json.RawMessage
}

// CheckLine takes a line apart, without its newline, as strictly as the strictest client.
func CheckLine(line []byte) (Line, error) {
	// An escape of half a surrogate pair is JSON; jsontext calls it invalid UTF-8, so that is looked at here.
	if !utf8.Valid(line) || !jsontext.Value(line).IsValid(jsontext.AllowInvalidUTF8(true)) {
		return Line{}, fmt.Errorf("not JSON, or not UTF-8, or a name twice: %s", clip(line))
	}
	var m struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Method  *string         `json:"method"`
		Params  json.RawMessage `json:"params"`
		Result  json.RawMessage `json:"result"`
		Error   json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(line, &m); err != nil {
		return Line{}, fmt.Errorf("not an object of JSON-RPC: %s", clip(line))
	}
	var err error
	switch {
	case m.JSONRPC != "2.0":
		err = errors.New(`without "jsonrpc":"2.0"`)
	case string(m.ID) == "null":
		err = errors.New("with a null id")
	case m.Method != nil && (m.Result != nil || m.Error != nil):
		err = errors.New("request and answer at once")
	case m.Method == nil && (m.Result == nil) == (m.Error == nil):
		err = errors.New("neither request nor answer")
	case m.Method == nil && m.ID == nil && m.Error == nil:
		err = errors.New("a result without an id")
	}
	if err != nil {
		return Line{}, fmt.Errorf("%w: %s", err, clip(line))
	}
	l := Line{ID: m.ID, Params: m.Params, Result: m.Result, Error: m.Error}
	if m.Method != nil {
		l.Method = *m.Method
	}
	return l, nil
}

func clip(line []byte) string {
	const enough = 300
	if len(line) > enough {
		return fmt.Sprintf("%q… (%d bytes)", line[:enough], len(line))
	}
	return fmt.Sprintf("%q", line)
}

package inputschema_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/sox-host/sox-host/sdk"
	"github.com/sox-host/sox-host/sdk/inputschema"
	"github.com/sox-host/sox-host/sdk/sdktest"
)

type door struct {
	Color string `json:"color"`
	Key   int64  `json:"key,omitempty"`
}

const doorSchema = `{"type":"object","properties":{"color":{"enum":["red","blue"],"default":"blue"},"key":{"type":"integer","minimum":1}}}`

func paint(_ context.Context, in door) (door, error) { return in, nil }

func TestSchemaOfTheAuthorIsEnforced(t *testing.T) {
	p := sdk.New("own", "1.0.0")
	sdk.Method(p, "own.paint", paint, inputschema.New(doorSchema))
	s := sdktest.Start(t, p).Root()
	for params, want := range map[string]string{
		`{}`:                                     `{"color":"blue"}`,
		`{"color":"red"}`:                        `{"color":"red"}`,
		`{"color":"red","key":9007199254740993}`: `{"color":"red","key":9007199254740993}`,
	} {
		if raw, err := s.Call("own.paint", json.RawMessage(params)); err != nil || string(raw) != want {
			t.Errorf("%s: got %s, %v, want %s", params, raw, err, want)
		}
	}
	for params, want := range map[string]string{
		`{"color":"green"}`:         "own.paint: /properties/color: ",
		`{"color":"red","key":0}`:   "key",
		`{"color":"red","other":1}`: `unknown member "other"`, // of the Go type
		`[]`:                        "object",
	} {
		_, err := s.Call("own.paint", json.RawMessage(params))
		var e *sdk.Error
		if !errors.As(err, &e) || e.Code != sdk.CodeInvalidParams || !strings.Contains(e.Message, want) || strings.Contains(e.Message, "validating") {
			t.Errorf("%s: got %v, want %q", params, err, want)
		}
	}
}

func TestToolShowsTheSchemaOfTheAuthor(t *testing.T) {
	p := sdk.New("own", "1.0.0")
	sdk.Tool(p, "paint", "", paint, inputschema.New(doorSchema))
	s := sdktest.Start(t, p).Open(sdktest.MCP("2025-11-25"))
	if raw, err := s.Call("tools/list", nil); err != nil || !strings.Contains(string(raw), `"inputSchema":`+doorSchema) {
		t.Errorf("tools/list: %s, %v", raw, err)
	}
	if r := s.Tool("paint", json.RawMessage(`{"color":"green"}`)); !r.IsError {
		t.Errorf("green: %+v", r)
	}
}

func TestFaultsOfTheProgramPanic(t *testing.T) {
	for name, f := range map[string]func(){
		"not_json":           func() { inputschema.New(`{`) },
		"no_schema":          func() { inputschema.New(`{"type":5}`) },
		"default_that_fails": func() { inputschema.New(`{"properties":{"n":{"type":"integer","default":"x"}}}`) },
		"tool_without_object": func() {
			sdk.Tool(sdk.New("own", "1.0.0"), "x", "", paint, inputschema.New(`{"type":"array"}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

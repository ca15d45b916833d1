package main

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/sox-host/sox-host/plugin/wire"
)

// idOf returns a client's id as the SDK has it, which keeps texts and whole numbers.
func idOf(raw []byte) (jsonrpc.ID, bool) {
	if raw[0] == '"' {
		return stringID(string(wire.Unquote(raw))), true
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n > maxExact || n < -maxExact || strconv.FormatInt(n, 10) != string(raw) {
		return jsonrpc.ID{}, false
	}
	id, err := jsonrpc.MakeID(float64(n))
	return id, err == nil
}

// maxExact is the largest whole number that every JSON reader keeps exactly.
const maxExact = 1<<53 - 1

func stringID(text string) jsonrpc.ID {
	id, _ := jsonrpc.MakeID(text) // a text is always one
	return id
}

// marshal encodes what always can be.
func marshal(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // a bug: only texts, numbers and raw values that were read are passed
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

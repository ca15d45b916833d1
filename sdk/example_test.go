package sdk_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sox-host/sox-host/sdk"
)

// talk plays a client that starts p by hand, sends these lines and prints the answers.
func talk(p *sdk.Plugin, lines ...string) {
	err := p.ServeLines(context.Background(), strings.NewReader(strings.Join(lines, "\n")), os.Stdout)
	if err != nil {
		fmt.Println(err)
	}
}

type AddIn struct {
	A int `json:"a"`
	B int `json:"b" jsonschema:"what to add to a"`
}

type AddOut struct {
	Sum int `json:"sum"`
}

func Add(_ context.Context, in AddIn) (AddOut, error) { return AddOut{in.A + in.B}, nil }

// A whole plugin. In a program the last line is sdk.Main(p).
func Example() {
	p := sdk.New("sums", "1.0.0")
	sdk.Tool(p, "add", "Adds two numbers.", Add, sdk.ReadOnly())
	sdk.Method(p, "sums.add", Add, sdk.ReadOnly())

	talk(p, `{"jsonrpc":"2.0","id":1,"method":"sums.add","params":{"a":1,"b":2}}`)
	// Output:
	// {"jsonrpc":"2.0","id":1,"result":{"sum":3}}
}

// The result of a tool is structured, for programs, and text, for models.
func ExampleTool() {
	p := sdk.New("sums", "1.0.0")
	sdk.Tool(p, "add", "Adds two numbers.", Add, sdk.ReadOnly(), sdk.Title("Sum"))

	talk(p, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":2}}}`)
	// Output:
	// {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"{\"sum\":3}"}],"structuredContent":{"sum":3}}}
}

// Input that does not fit never reaches the function.
func ExampleMethod() {
	p := sdk.New("sums", "1.0.0")
	sdk.Method(p, "sums.add", Add, sdk.ReadOnly())

	talk(p, `{"jsonrpc":"2.0","id":1,"method":"sums.add","params":{"a":"one","b":2}}`)
	// Output:
	// {"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"sums.add: member \"a\": want integer, got string","data":{"code":"E_INVALID_PARAMS","plugin":"sums","version":"1.0.0","executed":"no"}}}
}

// One function for a family of methods, with raw params.
func ExampleHandleFunc() {
	p := sdk.New("raw", "1.0.0")
	sdk.HandleFunc(p, "raw.*", func(_ context.Context, r *sdk.Request) (json.RawMessage, error) {
		return json.Marshal(strings.TrimPrefix(r.Method, "raw."))
	}, sdk.ReadOnly())

	talk(p, `{"jsonrpc":"2.0","id":1,"method":"raw.anything"}`)
	// Output:
	// {"jsonrpc":"2.0","id":1,"result":"anything"}
}

// A counter that survives an upgrade.
func ExampleState() {
	var count atomic.Int64
	p := sdk.New("counter", "1.1.0")
	sdk.State(p,
		func(context.Context) (int64, error) { return count.Load(), nil },
		func(_ context.Context, n int64) error { count.Store(n); return nil })
}

// Errors with a code of the author's own.
func ExampleErrorf() {
	p := sdk.New("shop", "1.0.0")
	sdk.Method(p, "shop.buy", func(context.Context, struct{}) (struct{}, error) {
		return struct{}{}, sdk.Errorf(1001, "sold out; ask again tomorrow")
	})

	talk(p, `{"jsonrpc":"2.0","id":1,"method":"shop.buy"}`)
	// Output:
	// {"jsonrpc":"2.0","id":1,"error":{"code":1001,"message":"sold out; ask again tomorrow","data":{"code":"E_INTERNAL","plugin":"shop","version":"1.0.0","executed":"unknown"}}}
}

// A process of one's own that goes away when it has nothing to do.
func ExampleRetirer() {
	retirer := sdk.NewRetirer(sdk.RetirerConfig{
		IdleWindow: time.Millisecond,
		Steps: []sdk.RetireStep{{Name: "say goodbye", Run: func(context.Context) error {
			fmt.Println("nothing to do")
			return nil
		}}},
	})
	retirer.Arm()
	<-retirer.Done()
	// Output:
	// nothing to do
}

// Adapted is a server of the official Go SDK as a plugin of the benchmark.
package main

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sox-host/sox-host/sdk"
	"github.com/sox-host/sox-host/sdk/mcpserver"
)

type said struct {
	Text string `json:"text"`
}

func say(_ context.Context, _ *mcp.CallToolRequest, in said) (*mcp.CallToolResult, any, error) {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text}}}, nil, nil
}

func main() {
	server := mcp.NewServer(&mcp.Implementation{Name: "adapted", Version: "1.0.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "say", Description: "Say the text back.", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, say)
	p := sdk.New("adapted", "1.0.0")
	mcpserver.Serve(p, server)
	sdk.Main(p)
}

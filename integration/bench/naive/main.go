// Naive is a proxy on the official Go SDK as a good engineer writes it in an afternoon: it starts one server, offers
// the server's tools as its own, and passes calls on. The benchmark compares with it.
//
//	naive COMMAND [ARGUMENT...]
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "naive:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, command []string) error {
	if len(command) == 0 {
		return fmt.Errorf("usage: naive COMMAND [ARGUMENT...]")
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	client := mcp.NewClient(&mcp.Implementation{Name: "naive", Version: "1.0.0"}, nil)
	backend, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		return fmt.Errorf("backend: %w", err)
	}
	defer backend.Close()

	server := mcp.NewServer(&mcp.Implementation{Name: "naive", Version: "1.0.0"}, nil)
	list, err := backend.ListTools(ctx, nil)
	if err != nil {
		return fmt.Errorf("tools: %w", err)
	}
	for _, tool := range list.Tools {
		exposed := *tool
		exposed.Name = "echo__" + tool.Name
		server.AddTool(&exposed, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return backend.CallTool(ctx, &mcp.CallToolParams{Name: tool.Name, Arguments: r.Params.Arguments})
		})
	}
	return server.Run(ctx, &mcp.StdioTransport{})
}

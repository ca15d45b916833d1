package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// journaled keeps a record of who read what was asked, for people who have to account for that: with NOTES_JOURNAL set to a file, each call and each
// read appends one line, "TRACE VERSION PID", before it is answered. TRACE is the traceparent that the client sent in _meta, or "-".
func journaled(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		path := os.Getenv("NOTES_JOURNAL")
		if path == "" || method != "tools/call" && method != "resources/read" {
			return next(ctx, method, req)
		}
		trace, _ := req.GetParams().GetMeta()["traceparent"].(string)
		if trace = strings.Join(strings.Fields(trace), ""); trace == "" {
			trace = "-"
		}
		if err := appendLine(path, fmt.Sprintf("%s %s %d\n", trace, version, os.Getpid())); err != nil {
			return nil, fmt.Errorf("the journal cannot be written: %w", err)
		}
		return next(ctx, method, req)
	}
}

// appendLine adds a line in one write, so that lines of several processes do not mix.
func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Close())
}

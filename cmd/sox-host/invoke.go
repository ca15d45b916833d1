package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/sox-host/sox-host/host"
	"github.com/sox-host/sox-host/plugin/wire"
)

// maxArguments bounds what is read from stdin: the longest line that a client may send.
const maxArguments = wire.DefaultMaxLineBytes

func callCommand() *command {
	var f askFlags
	return &command{
		name:    "call",
		args:    "NAME TOOL [JSON|-] | METHOD [JSON|-]",
		minArgs: 1,
		maxArgs: 3,
		short:   "Call one tool, or one plain JSON-RPC method",
		help: `Asks the running host, so that the answer comes from the process that clients talk to;
without one, or with --private, a process is started for this call. A METHOD has a dot
or a slash in it. The arguments are a JSON object, or - to read it from stdin; what a
tool takes is in sox-host tools NAME --json. Texts of the result go to stdout; --json
shows all of it.

Examples:
  sox-host call notes search '{"query":"garden"}'
  echo '{"query":"garden"}' | sox-host call notes search -
  sox-host call notes.get_backlinks '{"path":"README.md"}' --json
`,
		exits: []host.Exit{host.ExitDone, host.ExitFailed, host.ExitUsage, host.ExitNotFound, host.ExitRefused, host.ExitDeadline, host.ExitBusy},
		means: map[host.Exit]string{
			host.ExitFailed: "the tool or the method failed, or its plugin could not be started", host.ExitNotFound: "no such plugin, tool or method",
			host.ExitBusy: "the plugin, or the host, has too much to do",
		},
		flags: func(fs *pflag.FlagSet) { f.declare(fs) },
		run: func(ctx context.Context, c *call) error {
			o, err := f.options(c)
			if err != nil {
				return err
			}
			rest := c.args[1:]
			if strings.ContainsAny(c.args[0], "./") {
				o.Method = c.args[0]
			} else {
				if plugin, tool, ok := splitTool(c.args[0]); ok {
					return usagef("%q is no plugin: did you mean sox-host call %s %s?", c.args[0], plugin, shellQuote(tool))
				}
				if len(rest) == 0 {
					return usagef("needs the TOOL to call: sox-host tools %s lists them", shellQuote(c.args[0]))
				}
				o.Plugin, o.Tool, rest = c.args[0], rest[0], rest[1:]
			}
			if len(rest) > 1 {
				return usagef("takes %s, got %q too", "METHOD [JSON|-]", rest[1])
			}
			if len(rest) == 1 {
				if o.Params, err = readArguments(c.stdin, rest[0]); err != nil {
					return err
				}
			}
			return runCall(ctx, c, o)
		},
	}
}

// splitTool takes a tool's name as clients see it, or something like it, for what it is: a plugin's name has no _.
func splitTool(name string) (plugin, tool string, ok bool) {
	plugin, tool, ok = strings.Cut(name, "_")
	tool = strings.TrimLeft(tool, "_")
	return plugin, tool, ok && tool != "" && host.ValidName(plugin)
}

func readArguments(stdin io.Reader, arg string) (json.RawMessage, error) {
	raw := []byte(arg)
	if arg == "-" {
		var err error
		if raw, err = io.ReadAll(io.LimitReader(stdin, maxArguments+1)); err != nil {
			return nil, fmt.Errorf("read the arguments from stdin: %w", err)
		}
		if len(raw) > maxArguments {
			return nil, usagef("the arguments have more than %d bytes", maxArguments)
		}
	}
	raw = bytes.TrimSpace(raw)
	if !wire.ValidValue(raw) || raw[0] != '{' {
		return nil, usagef("the arguments are not a JSON object: %q", clipText(string(raw)))
	}
	var line bytes.Buffer // one line: a new line would end the request
	if err := json.Compact(&line, raw); err != nil {
		return nil, usagef("the arguments: %v", err)
	}
	return line.Bytes(), nil
}

func clipText(s string) string {
	if len(s) > 60 {
		return s[:60] + "..."
	}
	return s
}

// callResult is the result with --json.
type callResult struct {
	Exit   host.Exit       `json:"exit"`
	Host   int             `json:"host,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"`
}

func runCall(ctx context.Context, c *call, o host.AskOptions) error {
	answer, err := host.Ask(ctx, o)
	if err != nil {
		return err
	}
	if answer.NotFound != "" {
		return &exitError{host.ExitNotFound, errors.New(oneLine(answer.NotFound + toolAdvice(o, answer.Tools)))}
	}
	if answer.Result == nil && answer.Error == nil && len(answer.Problems) > 0 {
		return fmt.Errorf("%s could not be started: %s", o.Plugin, oneLine(strings.TrimPrefix(strings.Join(answer.Problems, "; "), o.Plugin+": ")))
	}
	result := callResult{Host: answer.PID, Result: answer.Result, Error: answer.Error}
	var failed wire.Error
	if answer.Error != nil {
		result.Exit = host.ExitFailed
		if json.Unmarshal(answer.Error, &failed) == nil {
			result.Exit = exitOfCode(failed.Code)
		}
	}
	var tool toolResult
	if o.Tool != "" && answer.Result != nil && json.Unmarshal(answer.Result, &tool) == nil && tool.IsError {
		result.Exit = host.ExitFailed
	}
	switch {
	case c.json:
		if err := c.printJSON(result); err != nil {
			return err
		}
	case answer.Error != nil:
		return &exitError{result.Exit, errors.New(oneLine(failed.Message + adviceOn(o, answer, failed, tool)))}
	case o.Tool != "":
		tool.print(c)
		if advice := adviceOn(o, answer, failed, tool); tool.IsError && advice != "" {
			fmt.Fprintf(c.stderr, "sox-host call: %s\n", oneLine(strings.TrimPrefix(advice, "; ")))
		}
	default:
		return c.printJSON(answer.Result)
	}
	return exitWith(result.Exit)
}

func exitOfCode(code wire.Code) host.Exit {
	switch code {
	case wire.CodeBusy:
		return host.ExitBusy
	case wire.CodeDeadlineExceeded:
		return host.ExitDeadline
	case wire.CodeReadOnly:
		return host.ExitRefused
	case wire.CodeMethodNotFound:
		return host.ExitNotFound
	}
	return host.ExitFailed
}

// toolResult is what a person wants of a tool's result.
type toolResult struct {
	IsError bool
	Content []struct {
		Type, Text, MimeType, URI, Data string
	}
	StructuredContent json.RawMessage
}

func (r toolResult) print(c *call) {
	for _, part := range r.Content {
		switch {
		case part.Type == "text":
			c.printf("%s\n", printable(strings.TrimSuffix(part.Text, "\n")))
		case part.URI != "":
			c.printf("[%s %s]\n", oneLine(part.Type), oneLine(part.URI))
		default:
			c.printf("[%s %s, %d characters of base64]\n", oneLine(part.Type), oneLine(part.MimeType), len(part.Data))
		}
	}
	if len(r.Content) == 0 && r.StructuredContent != nil {
		_ = c.printJSON(r.StructuredContent) // stdout is gone: nobody left to tell
	}
}

// printable keeps lines and tabs, and takes away what could steer the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sox-host/sox-host/host"
	"github.com/sox-host/sox-host/plugin/wire"
)

// command is one word after sox-host.
type command struct {
	name   string
	args   string      // as shown in the usage line
	short  string      // one line
	help   string      // what it does, and examples
	exits  []host.Exit // all it can end with
	hidden bool
	// means says what exit codes mean here, where that is more than exitMeaning knows.
	means map[host.Exit]string
	// jsonUsage replaces the text about --json.
	jsonUsage string
	// maxArgs is how many arguments it takes, -1 for any number; minArgs how many it needs.
	minArgs, maxArgs int
	// meant says of arguments that it does not take what was probably meant by them, "" if it cannot tell. May be nil.
	meant func(args []string) string
	// flags declares its own flags. run is called after they are parsed.
	flags func(fs *pflag.FlagSet)
	run   func(ctx context.Context, c *call) error
}

// call is one command line being executed.
type call struct {
	args   []string
	flags  *pflag.FlagSet
	stdin  io.Reader
	stdout io.Writer // results only
	stderr io.Writer // progress and logs
	json   bool

	home, pluginsDir string // absolute once folders has been called
}

// exitError ends a command with a code. A nil err has nothing more to say: the result on stdout says it.
type exitError struct {
	code host.Exit
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &exitError{host.ExitUsage, fmt.Errorf(format, args...)}
}

// exitWith ends a command whose result is printed.
func exitWith(code host.Exit) error {
	if code == host.ExitDone {
		return nil
	}
	return &exitError{code: code}
}

func (cmd *command) execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) host.Exit {
	c := &call{flags: cmd.flagSet(), stdin: stdin, stdout: stdout, stderr: stderr}
	c.flags.BoolVar(&c.json, "json", false, cmp.Or(cmd.jsonUsage, "print the result as one JSON object"))
	c.flags.StringVar(&c.home, "home", "", "`folder` of everything sox-host owns (default: $SOX_HOME, else ~/.sox)")
	c.flags.StringVar(&c.pluginsDir, "plugins-dir", "", "`folder` of the plugins (default: $SOX_PLUGINS_DIR, else plugins in the home)")

	err := c.flags.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		cmd.usage(stdout, c.flags)
		return host.ExitDone
	case err != nil:
		c.json = c.json || slices.Contains(args, "--json")
		err = usagef("%w%s", err, cmp.Or(suggestFlag(c.flags, err), cmd.guess(args)))
	default:
		c.args = c.flags.Args()
		if err = cmd.checkArgs(c.args); err != nil {
			err = usagef("%w%s", err, cmd.guess(c.args))
		} else {
			err = cmd.run(ctx, c)
		}
	}
	return c.finish(cmd, err)
}

func (cmd *command) guess(args []string) string {
	if cmd.meant == nil {
		return ""
	}
	return cmd.meant(args)
}

func (cmd *command) flagSet() *pflag.FlagSet {
	fs := pflag.NewFlagSet(cmd.name, pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	if cmd.flags != nil {
		cmd.flags(fs)
	}
	fs.SortFlags = false
	return fs
}

func (cmd *command) checkArgs(args []string) error {
	switch {
	case len(args) < cmd.minArgs:
		return usagef("needs %s", cmd.args)
	case cmd.maxArgs >= 0 && len(args) > cmd.maxArgs:
		if cmd.maxArgs == 0 {
			return usagef("takes no arguments, got %q", args[0])
		}
		return usagef("takes %s, got %q too", cmd.args, args[cmd.maxArgs])
	}
	return nil
}

// finish reports an error and turns it into the exit code.
func (c *call) finish(cmd *command, err error) host.Exit {
	if err == nil {
		return host.ExitDone
	}
	code := host.ExitCode(err)
	var e *exitError
	if errors.As(err, &e) {
		code = e.code
		if e.err == nil {
			return code
		}
	}
	wrong := errors.Is(err, host.ErrPluginName)
	if wrong || errors.Is(err, host.ErrUnknownPlugin) {
		for _, name := range c.args {
			if wrong && host.ValidName(name) { // the error is about another one
				continue
			}
			if hint := c.suggestPlugin(name); hint != "" {
				return c.fail(cmd, code, suggested(inWords(err), name, hint))
			}
		}
	}
	return c.fail(cmd, code, inWords(err))
}

// fail prints what an error says and returns its code.
func (c *call) fail(cmd *command, code host.Exit, text string) host.Exit {
	fmt.Fprintf(c.stderr, "sox-host %s: %s\n", cmd.name, text)
	if code == host.ExitUsage {
		fmt.Fprintf(c.stderr, "Run sox-host help %s for how it is used.\n", cmd.name)
	}
	if c.json && cmd.name != "serve" {
		_ = c.printJSON(map[string]any{"exit": code, "error": text})
	}
	return code
}

// inWords is the text of an error without the number that a protocol gives it: that is for programs.
func inWords(err error) string {
	text := err.Error()
	var numbered *wire.Error
	if errors.As(err, &numbered) {
		text = strings.ReplaceAll(text, numbered.Error(), numbered.Message)
	}
	return text
}

// folders fills home and pluginsDir with what the flags and the environment lead to.
func (c *call) folders() (err error) {
	c.home, c.pluginsDir, err = host.Folders(c.home, c.pluginsDir)
	return err
}

// sameFolders returns the flags that lead another command to the same folders, with a leading space, or nothing.
func (c *call) sameFolders() string {
	var s strings.Builder
	for _, name := range []string{"home", "plugins-dir"} {
		if f := c.flags.Lookup(name); f != nil && f.Changed {
			fmt.Fprintf(&s, " --%s %s", name, shellQuote(f.Value.String()))
		}
	}
	return s.String()
}

func (c *call) printJSON(v any) error {
	e := json.NewEncoder(c.stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func (c *call) printf(format string, args ...any) { fmt.Fprintf(c.stdout, format, args...) }

// usage prints the help of one command.
func (cmd *command) usage(w io.Writer, fs *pflag.FlagSet) {
	line := "sox-host " + cmd.name
	if cmd.args != "" {
		line += " " + cmd.args
	}
	fmt.Fprintf(w, "%s\n\nUsage: %s [flags]\n\n%s\nFlags:\n", cmd.short, line, cmd.help)
	printFlags(w, fs)
	if len(cmd.exits) == 0 {
		return
	}
	fmt.Fprint(w, "\nExit codes:\n")
	t := newHelpTable(w)
	for _, code := range slices.Sorted(slices.Values(cmd.exits)) {
		t.row(exitRow(code, cmp.Or(cmd.means[code], exitMeaning(code)))...)
	}
	t.print()
}

// printFlags shows the flags in the order they were declared. A switch is shown without a value.
func printFlags(w io.Writer, fs *pflag.FlagSet) {
	t := newHelpTable(w)
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f) // the word in backquotes names the value
		name := "  --" + f.Name
		if f.Shorthand != "" {
			name = "  -" + f.Shorthand + ", --" + f.Name
		}
		if f.Value.Type() != "bool" {
			name += " " + strings.ToUpper(value)
		}
		if f.DefValue != "" && f.DefValue != "[]" && f.DefValue != "false" && f.DefValue != "0s" {
			usage += " (default: " + strings.Replace(f.DefValue, "m0s", "m", 1) + ")"
		}
		t.row(name, usage)
	})
	t.row("  -h, --help", "show this help")
	t.print()
}

func shellQuote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:@") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

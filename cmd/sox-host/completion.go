package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sox-host/sox-host/host"
)

var shells = []string{"bash", "zsh", "fish"}

func completionCommand() *command {
	return &command{
		name:    "completion",
		args:    strings.Join(shells, "|"),
		minArgs: 1,
		maxArgs: 1,
		short:   "Print the completion script of a shell",
		help: `Completes commands, flags and the names of your plugins.

Examples:
  source <(sox-host completion bash)
  sox-host completion zsh > "${fpath[1]}/_sox-host"
  sox-host completion fish > ~/.config/fish/completions/sox-host.fish
`,
		exits: []host.Exit{host.ExitDone, host.ExitUsage},
		run: func(_ context.Context, c *call) error {
			shell := c.args[0]
			if !slices.Contains(shells, shell) {
				hint := ""
				if near := host.NearestWord(shell, shells); near != "" {
					hint = fmt.Sprintf(": did you mean %s?", near)
				}
				return usagef("no completion for %q, only for %s%s", shell, strings.Join(shells, ", "), hint)
			}
			script := completionScript(shell, commands())
			if c.json {
				return c.printJSON(map[string]string{"shell": shell, "script": script})
			}
			c.printf("%s", script)
			return nil
		},
	}
}

// takesPlugins are the commands whose arguments are names of plugins that exist.
func takesPlugins(cmd *command) bool {
	return strings.Contains(cmd.args, "NAME") && cmd.name != "new"
}

func completionScript(shell string, all []*command) string {
	var visible []*command
	for _, cmd := range all {
		if !cmd.hidden {
			visible = append(visible, cmd)
		}
	}
	switch shell {
	case "bash":
		return bashScript(visible)
	case "zsh":
		return zshScript(visible)
	}
	return fishScript(visible)
}

// flagsOf returns every flag of a command, those that all commands have included.
func flagsOf(cmd *command) []*pflag.Flag {
	fs := cmd.flagSet()
	fs.Bool("json", false, "print the result as one JSON object")
	fs.String("home", "", "folder of everything sox-host owns")
	fs.String("plugins-dir", "", "folder of the plugins")
	fs.Bool("help", false, "show help")
	var flags []*pflag.Flag
	fs.VisitAll(func(f *pflag.Flag) {
		_, f.Usage = pflag.UnquoteUsage(f)
		flags = append(flags, f)
	})
	return flags
}

func bashScript(all []*command) string {
	var b strings.Builder
	var names, plugins []string
	for _, cmd := range all {
		names = append(names, cmd.name)
		if takesPlugins(cmd) {
			plugins = append(plugins, cmd.name)
		}
	}
	fmt.Fprintf(&b, `# bash completion for sox-host
_sox_host() {
    local cur=${COMP_WORDS[COMP_CWORD]} words=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "%s help" -- "$cur"))
        return
    fi
    case "${COMP_WORDS[1]}" in
`, strings.Join(names, " "))
	for _, cmd := range all {
		var flags []string
		for _, f := range flagsOf(cmd) {
			flags = append(flags, "--"+f.Name)
		}
		fmt.Fprintf(&b, "        %s) words=%q ;;\n", cmd.name, strings.Join(flags, " "))
	}
	fmt.Fprintf(&b, `        help) words=%q ;;
    esac
    case "$cur" in
        -*) ;;
        *) case "${COMP_WORDS[1]}" in
            %s) words=$(sox-host %s 2>/dev/null) ;;
            completion) words=%q ;;
            help) ;;
            *) words="" ;;
        esac ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _sox_host sox-host
`, strings.Join(append(names, slices.Sorted(maps.Keys(topics()))...), " "), strings.Join(plugins, "|"), completePlugins, strings.Join(shells, " "))
	return b.String()
}

func zshScript(all []*command) string {
	var b strings.Builder
	b.WriteString(`#compdef sox-host
# zsh completion for sox-host
_sox_host() {
    local -a commands plugins
    commands=(
`)
	for _, cmd := range all {
		fmt.Fprintf(&b, "        %s\n", zshQuote(cmd.name+":"+strings.ReplaceAll(cmd.short, ":", `\:`)))
	}
	fmt.Fprintf(&b, `    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    plugins=(${(f)"$(sox-host %s 2>/dev/null)"})
    local command=${words[2]}
    shift words
    (( CURRENT-- ))
    case $command in
`, completePlugins)
	for _, cmd := range all {
		fmt.Fprintf(&b, "        %s)\n            _arguments", cmd.name)
		for _, f := range flagsOf(cmd) {
			spec := "--" + f.Name
			text := strings.NewReplacer("[", "(", "]", ")", ":", " -").Replace(f.Usage)
			if f.NoOptDefVal == "" {
				spec += "=[" + text + "]:value:_files"
			} else {
				spec += "[" + text + "]"
			}
			fmt.Fprintf(&b, " \\\n                %s", zshQuote(spec))
		}
		switch {
		case takesPlugins(cmd):
			b.WriteString(" \\\n                '*:plugin:($plugins)'")
		case cmd.name == "completion":
			fmt.Fprintf(&b, " \\\n                '1:shell:(%s)'", strings.Join(shells, " "))
		}
		b.WriteString(" ;;\n")
	}
	b.WriteString(`    esac
}
if [ "$funcstack[1]" = "_sox_host" ]; then
    _sox_host "$@"
else
    compdef _sox_host sox-host
fi
`)
	return b.String()
}

func zshQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func fishScript(all []*command) string {
	var b strings.Builder
	b.WriteString("# fish completion for sox-host\ncomplete -c sox-host -f\n")
	for _, cmd := range all {
		fmt.Fprintf(&b, "complete -c sox-host -n __fish_use_subcommand -a %s -d %s\n", cmd.name, fishQuote(cmd.short))
		seen := fmt.Sprintf("'__fish_seen_subcommand_from %s'", cmd.name)
		for _, f := range flagsOf(cmd) {
			value := ""
			if f.NoOptDefVal == "" {
				value = " -r -F"
			}
			fmt.Fprintf(&b, "complete -c sox-host -n %s -l %s%s -d %s\n", seen, f.Name, value, fishQuote(f.Usage))
		}
		if takesPlugins(cmd) {
			fmt.Fprintf(&b, "complete -c sox-host -n %s -a '(sox-host %s 2>/dev/null)'\n", seen, completePlugins)
		}
		if cmd.name == "completion" {
			fmt.Fprintf(&b, "complete -c sox-host -n %s -a %s\n", seen, fishQuote(strings.Join(shells, " ")))
		}
	}
	return b.String()
}

func fishQuote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

// completePlugins is the hidden command that the scripts ask for names.
const completePlugins = "__plugins"

func completePluginsCommand() *command {
	return &command{
		name:   completePlugins,
		short:  "Print the names of the plugins, for completion",
		hidden: true,
		run: func(_ context.Context, c *call) error {
			if err := c.folders(); err != nil {
				return err
			}
			inventory, err := host.List(c.home, c.pluginsDir)
			if err != nil {
				return err
			}
			names := []string{}
			for _, p := range inventory.Plugins {
				names = append(names, p.Plugin)
			}
			if c.json {
				return c.printJSON(names)
			}
			for _, name := range names {
				c.printf("%s\n", name)
			}
			return nil
		},
	}
}

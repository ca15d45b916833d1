package process

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// tellingLines is how far back the reason of an end is looked for: 40 lines
// hold the stack of a script and what npm says behind its error. What is older
// belongs to the life of the process and not to its end.
const tellingLines = 40

// usageLines is how far back the beginning of a usage text is looked for: 200
// lines hold one of some sixty flags. An older one is of no importance for the
// end of a process that has printed so much since.
const usageLines = 200

// Telling returns the line of a process's last output that says most about
// why it ended, "" if there is none.
//
// Programs rarely end with their reason: behind it come stack frames, where to
// read more, and what else they want to say. So the last line that speaks of
// an error counts. Where it is one of several in a row with the same label
// ("npm error code E404", "npm error 404 Not Found"), the first of them says
// what happened and the others go on about it. Indented lines belong to the
// line above them. Where nothing speaks of an error, it is the last line that
// is not blank.
//
// A usage text is another matter: it is long, and its prose may speak of
// errors. See tellingOfUsage.
func Telling(lines []string) string {
	line, _ := telling(lines)
	return line
}

// MaxSaid bounds what a message repeats of a process's output: 400 bytes, a
// long line of a log. A person or a model reads it.
const MaxSaid = 400

// Said is what a message has behind why a process ended: "; last output: ",
// the line that tells most, and the command that shows all of it, of the
// plugin that is named; "" stands for output that no log has. It is empty if
// nothing was printed.
func Said(lines []string, plugin string) string {
	line := Telling(lines)
	if line == "" {
		return ""
	}
	said := "; last output: " + strings.TrimSuffix(Clip(line, MaxSaid), ".")
	if plugin == "" {
		return said
	}
	return said + "; all of it: sox-host logs " + plugin
}

// Clip shortens a text to so many bytes, and an ellipsis.
func Clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// SaysWhy reports that a process's last output has a line about why it ended:
// one that speaks of an error, or that has the program's name in front, as
// programs print what they end with.
func SaysWhy(lines []string, program string) bool {
	_, why := telling(lines)
	return why || slices.ContainsFunc(lines[max(0, len(lines)-tellingLines):], named(program))
}

// SaysInUse reports that a process's last output speaks of something that
// another process holds: a lock, an address, a file.
func SaysInUse(lines []string) bool {
	return slices.ContainsFunc(lines[max(0, len(lines)-tellingLines):], inUse().MatchString)
}

// telling is Telling; why says that the line was found by what it says, and
// not only by its place.
func telling(lines []string) (line string, why bool) {
	said := tellingOfUsage(lines)
	if said.certain {
		return said.line, true
	}
	lines = lines[max(0, len(lines)-tellingLines):]
	last, word, pointer := "", errorWord(), logPointer()
	for i := len(lines) - 1; i >= 0; i-- {
		line := strings.TrimSpace(lines[i])
		if last == "" {
			last = line
		}
		found := word.FindStringIndex(lines[i])
		if found == nil || indented(lines[i]) || pointer.MatchString(line) {
			continue
		}
		label := lines[i][:found[1]]
		for i > 0 && strings.HasPrefix(lines[i-1], label) {
			i--
		}
		return strings.TrimSpace(lines[i]), true
	}
	if said.line != "" {
		return said.line, false
	}
	return last, false
}

// usageReason is what a usage text says about why it was printed. Not certain
// is a line that only stands where the reason would.
type usageReason struct {
	line    string
	certain bool
}

// tellingOfUsage returns the reason for which a usage text was printed, nothing
// if there is no such text. Most programs print the reason before it, as the
// packages of Go do; some behind it, as Python's argparse does, and then with
// the program's name or the word error in front, unlike the text's own prose.
// The lines right before the text, up to a blank one, belong to it, and of
// these the first that has the program's name in front, or else speaks of an
// error: a usage text has one reason.
func tellingOfUsage(lines []string) usageReason {
	header := usageHeader()
	at := -1
	for i := len(lines) - 1; i >= max(0, len(lines)-usageLines) && at < 0; i-- {
		if header.MatchString(lines[i]) {
			at = i
		}
	}
	if at < 0 {
		return usageReason{}
	}
	named := named(usedProgram(lines[at:]))
	before := lastParagraph(lines[max(0, at-tellingLines):at])
	word := errorWord()
	for _, speaks := range []func(string) bool{named, word.MatchString} {
		if i := slices.IndexFunc(before, func(line string) bool { return !indented(line) && speaks(line) }); i >= 0 {
			return usageReason{strings.TrimSpace(before[i]), true}
		}
	}
	label := errorLabel()
	for i := len(lines) - 1; i > at; i-- {
		if named(lines[i]) || label.MatchString(lines[i]) {
			return usageReason{strings.TrimSpace(lines[i]), true}
		}
	}
	if len(before) > 0 {
		return usageReason{strings.TrimSpace(before[len(before)-1]), false}
	}
	return usageReason{strings.TrimSpace(lines[at]), false}
}

// lastParagraph returns the lines behind the last blank one, not counting
// blank lines at the end.
func lastParagraph(lines []string) []string {
	blank := func(line string) bool { return strings.TrimSpace(line) == "" }
	for len(lines) > 0 && blank(lines[len(lines)-1]) {
		lines = lines[:len(lines)-1]
	}
	for i := len(lines) - 1; i >= 0; i-- {
		if blank(lines[i]) {
			return lines[i+1:]
		}
	}
	return lines
}

// usedProgram returns the program that a usage text is about, by the word
// behind "usage:" or "usage of", which may be on the next line; "" if none.
func usedProgram(usage []string) string {
	said := usageHeader().ReplaceAllString(usage[0], "$1 $2")
	if strings.TrimSpace(said) == "" && len(usage) > 1 {
		said = usage[1]
	}
	if words := strings.Fields(said); len(words) > 0 {
		return path.Base(words[0])
	}
	return ""
}

// named recognises the lines that begin with a program's name, or its path,
// and a colon.
func named(program string) func(string) bool {
	return func(line string) bool {
		name, _, ok := strings.Cut(line, ": ")
		return ok && program != "" && path.Base(name) == program
	}
}

func indented(line string) bool { return strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") }

// usageHeader is the line with which a usage text begins, and what it says of
// the program.
func usageHeader() *regexp.Regexp {
	return regexp.MustCompile(`(?i)^usage(?: of ([^:]+))?:(.*)$`)
}

// errorLabel is the beginning of a line that is an error, whatever it is about.
func errorLabel() *regexp.Regexp {
	return regexp.MustCompile(`(?i)^(\w*error|\w*exception|fatal|panic)\b`)
}

// errorWord is what lines about an error have, in the words and the names of
// exceptions of common languages.
func errorWord() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(err!|(\w*error|\w*exception|fatal|panic|panicked|failed|failure|cannot|could not|unable to|not found|no such|` +
		`denied|refused|aborted|invalid|unknown|unrecognized|unsupported|unexpected|not defined)\b)`)
}

// inUse is how programs say that another process is in their way.
func inUse() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(eaddrinuse|ebusy|in use|used by another|already (running|open|locked|started|bound|listening)|another (instance|process|copy)|` +
		`only one (instance|usage)|resource (temporarily unavailable|busy)|(is|are|been) locked|locked by|` +
		`(acquire|obtain|get|take|hold|holds|held|lock) .*lock|lock .*(held|taken|exists)|file exists)\b`)
}

// logPointer is a line that only says where to read more.
func logPointer() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\blogs? .*\b(found|written|saved)\b|\.log$|\bfor more (information|details|help)\b`)
}

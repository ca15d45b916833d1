package process

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// inherited are the variables that every plugin gets from the host's own
// environment: what programs need to find files, speak the user's language and
// trust certificates. A trailing star stands for any rest.
var inherited = []string{
	"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_*", "TMPDIR", "SHELL", "TERM", "TZ", "XDG_*", "SSL_CERT_*",
}

// withheld are variables that change what a program loads or how its runtime
// behaves. No wildcard of a settings file lets them through, only their name
// or a pattern that is at least as narrow as the one here.
var withheld = []string{
	"LD_*", "DYLD_*", "GODEBUG", "GOTRACEBACK", "NODE_OPTIONS", "PYTHON*", "PERL5*", "RUBY*", "BASH_ENV", "ENV", "IFS",
}

// ownPrefix begins the variables by which host and plugin find each other. A
// host that was itself started by a host must not pass on its own.
const ownPrefix = "SOX_PLUGIN_"

// Environ builds a child's environment. From host, the host's own environment
// as os.Environ returns it, it takes the inherited ones and what allow names;
// a name in allow may end in a star. Variables that preload code or steer a
// runtime (LD_*, NODE_OPTIONS, ...) pass only if allow names them, not by "*".
// Then set is merged in and wins; an empty value stays an empty value. The
// result is sorted, has each name once, and shares nothing with its inputs.
// Names that cannot be in an environment are left out.
func Environ(allow []string, set map[string]string, host []string) []string {
	values := make(map[string]string)
	for _, entry := range host {
		name, value, ok := strings.Cut(entry, "=")
		if ok && validName(name) && passes(name, allow) {
			values[name] = value
		}
	}
	for name, value := range set {
		if validName(name) && !strings.ContainsRune(value, 0) {
			values[name] = value
		}
	}
	env := make([]string, 0, len(values))
	for name, value := range values {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env
}

// passes reports whether the host's variable name may reach a plugin.
func passes(name string, allow []string) bool {
	if strings.HasPrefix(name, ownPrefix) {
		return false
	}
	for _, pattern := range inherited {
		if matches(pattern, name) {
			return true
		}
	}
	for _, pattern := range allow {
		if matches(pattern, name) && namesWithheld(pattern, name) {
			return true
		}
	}
	return false
}

// namesWithheld reports whether pattern is narrow enough to name the variable
// on purpose; true for every variable that is not withheld.
func namesWithheld(pattern, name string) bool {
	for _, rule := range withheld {
		if matches(rule, name) && !matches(rule, strings.TrimSuffix(pattern, "*")) {
			return false
		}
	}
	return true
}

// matches compares a name with a pattern that may end in a star.
func matches(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}

// validName reports whether name can be the name of a variable.
func validName(name string) bool {
	return name != "" && !strings.ContainsAny(name, "=\x00")
}

// LookPath finds a command as a plugin's own PATH would: a name with a slash
// is made absolute against dir, a bare name is looked up in the PATH entry of
// env. Unlike a shell it never looks in the working folder.
func LookPath(name, dir string, env []string) (string, error) {
	failed := &StartError{Path: name, Kind: KindMissing}
	if name == "" {
		failed.Detail = "the command is empty"
		return "", failed
	}
	if strings.ContainsRune(name, filepath.Separator) {
		if filepath.IsAbs(name) {
			return name, nil
		}
		return filepath.Join(dir, name), nil
	}
	var path string
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			path = value
		}
	}
	for _, folder := range filepath.SplitList(path) {
		if !filepath.IsAbs(folder) {
			continue
		}
		candidate := filepath.Join(folder, name)
		if info, err := os.Stat(candidate); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return candidate, nil
		}
	}
	failed.Detail = "no such command in PATH=" + path
	return "", failed
}

package host

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// looksSecret says whether a variable is to be named as a credential: by what it is called, or by its value. Where it is
// kept does not depend on it.
func looksSecret(name, value string) bool { return namesSecret(name) || isKey(value) }

// secretWords are the words of names that stand for credentials. MAX_TOKENS and the like count something.
var secretWords = []string{
	"KEY", "KEYS", "APIKEY", "TOKEN", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "PASS", "PWD", "PAT",
	"CREDENTIAL", "CREDENTIALS", "CREDS", "AUTH", "AUTHORIZATION", "BEARER", "COOKIE", "DSN",
}

// secretEndings are the same where names are written in one, as in GITHUBTOKEN and PGPASSWORD.
var secretEndings = []string{"APIKEY", "TOKEN", "SECRET", "PASSWORD"}

func namesSecret(name string) bool {
	if name == "PWD" || name == "OLDPWD" { // the folder it runs in
		return false
	}
	for _, word := range nameWords(name) {
		if slices.Contains(secretWords, word) || slices.ContainsFunc(secretEndings, func(end string) bool { return strings.HasSuffix(word, end) }) {
			return true
		}
	}
	return false
}

// nameWords takes a name apart, in capitals: at everything but letters and digits, and where a capital follows a small
// letter.
func nameWords(name string) []string {
	var b strings.Builder
	small := false
	for _, r := range name {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			r = ' '
		case unicode.IsUpper(r) && small:
			b.WriteByte(' ')
		}
		small = unicode.IsLower(r)
		b.WriteRune(unicode.ToUpper(r))
	}
	return strings.Fields(b.String())
}

// keyBeginnings are what well-known services begin their keys with, and what keys on paper begin with.
var keyBeginnings = []string{
	"sk-", "sk_", "pk_", "rk_", "ghp_", "gho_", "ghs_", "ghu_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "xapp-", "AKIA", "AIza", "ya29.", "hf_", "npm_", "eyJ",
	"Bearer ", "Basic ", "-----BEGIN",
}

// isKey says whether a value looks like a key: by its beginning, as a user and a password in a url, or because it has
// twenty letters and digits, mixed, in a row, which no word has. A path may have the name of a build in it.
func isKey(value string) bool {
	if slices.ContainsFunc(keyBeginnings, func(begin string) bool { return strings.HasPrefix(value, begin) }) {
		return true
	}
	if regexp.MustCompile(`://[^/@\s:]*:[^/@\s]+@`).MatchString(value) {
		return true
	}
	if filepath.IsAbs(value) {
		return false
	}
	return slices.ContainsFunc(regexp.MustCompile(`[0-9A-Za-z]{20,}`).FindAllString(value, -1), func(run string) bool {
		return strings.ContainsAny(run, "0123456789") && strings.IndexFunc(run, unicode.IsLetter) >= 0
	})
}

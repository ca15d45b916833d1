//go:build linux

package main

import (
	"os/exec"
	"strings"
	"testing"
)

func TestTelling(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, output, want string }{
		{"the_registry_refuses", "go: downloading a.b/c v1.0.0\ngo: a.b/c@v1.0.0: reading a list: 403 Forbidden\n\tserver response: This module version is not available.\n",
			"server response: This module version is not available."},
		{"it_does_not_compile", "go: downloading a.b/c v1.0.0\n# a.b/c\nmain.go:3:2: undefined: x\n", "main.go:3:2: undefined: x"},
		{"npm", "npm warn EBADENGINE {\nnpm error code ENOTFOUND\nnpm error network request failed, reason: no such host\nnpm error network This is a problem\nnpm error A complete log of this run can be found in: x\n",
			"npm error network request failed, reason: no such host"},
	} {
		if got := telling(c.output); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestRan(t *testing.T) {
	t.Parallel()
	if err := ran(exec.Command("sh", "-c", "true")); err != nil {
		t.Error(err)
	}
	if err := ran(exec.Command("sh", "-c", "echo 'a | b' >&2; exit 3")); err == nil || err.Error() != "sh -c: a / b" {
		t.Error(err)
	}
	if err := ran(exec.Command("/nowhere/npm", "ci")); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
}

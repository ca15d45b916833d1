package host

import "testing"

func TestLooksSecret(t *testing.T) {
	for variable, want := range map[[2]string]bool{
		{"LOG_LEVEL", "debug"}:                       false,
		{"MAX_TOKENS", "4096"}:                       false,
		{"MODEL", "large-3-5-20261022"}:              false,
		{"PORT", "8080"}:                             false,
		{"PWD", "/home/me"}:                          false,
		{"KEYBOARD", "de"}:                           false,
		{"AUTHOR", "me"}:                             false,
		{"MONKEY", "yes"}:                            false,
		{"BASE_URL", "https://api.example/v1"}:       false,
		{"NODE_PATH", "/opt/0123456789abcdef012345"}: false,
		{"EMPTY", ""}:                                false,

		{"API_KEY", "x"}:              true,
		{"GITHUB_TOKEN", "x"}:         true,
		{"GITHUBTOKEN", "x"}:          true,
		{"github-pat", "x"}:           true,
		{"clientSecret", "x"}:         true,
		{"PGPASSWORD", "x"}:           true,
		{"DB_PWD", "x"}:               true,
		{"AWS_SECRET_ACCESS_KEY", ""}: true,
		{"GOOGLE_CREDENTIALS", "x"}:   true,
		{"BASIC_AUTH", "x"}:           true,

		{"FOO", "sk-abc"}:                                 true,
		{"FOO", "ghp_abc"}:                                true,
		{"FOO", "Bearer abc"}:                             true,
		{"FOO", "0123456789abcdef012345"}:                 true,
		{"DATABASE_URL", "postgres://me:pw@db.example/x"}: true,
	} {
		if got := looksSecret(variable[0], variable[1]); got != want {
			t.Errorf("%s=%s: %v, want %v", variable[0], variable[1], got, want)
		}
	}
}

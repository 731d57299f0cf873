package cli

import (
	"os"
	"strings"
	"testing"

	"berth/internal/api"
	"berth/internal/tests/testkit"
)

func TestOverSSHWebSaysHowToForwardThePort(t *testing.T) {
	env := func(pairs ...string) func(string) string {
		return func(name string) string {
			for i := 0; i+1 < len(pairs); i += 2 {
				if pairs[i] == name {
					return pairs[i+1]
				}
			}
			return ""
		}
	}
	ssh := env("SSH_CONNECTION", "10.0.0.1 50000 10.0.0.2 22", "DISPLAY", ":10")
	if got := forwarding(api.Login{Address: "http://127.0.0.1:7878"}, ssh); !strings.Contains(got, "ssh -N -L 7878:127.0.0.1:7878 ") {
		t.Errorf("over ssh: %q", got)
	}
	if got := forwarding(api.Login{Address: "http://[::1]:7878"}, ssh); !strings.Contains(got, "ssh -N -L 7878:[::1]:7878 ") {
		t.Errorf("over ssh: %q", got)
	}
	if got := forwarding(api.Login{Address: "https://gpu1.example.org:7878"}, ssh); got != "" {
		t.Errorf("an address that others reach: %q", got)
	}
	if got := forwarding(api.Login{Address: "http://127.0.0.1:7878"}, env()); got != "" {
		t.Errorf("at the machine: %q", got)
	}
	if got := browserOf(ssh); got != "" {
		t.Errorf("a browser over ssh: %q", got)
	}
	if got := browserOf(env()); got != "" {
		t.Errorf("a browser without a desktop: %q", got)
	}
}

// TestALoginIsNoArgumentOfABrowser: other users see those.
func TestALoginIsNoArgumentOfABrowser(t *testing.T) {
	dir := t.TempDir()
	file, err := redirection("http://127.0.0.1:7878/#login=a&b", func(string) string { return dir })
	testkit.Must(t, err)
	info, err := os.Stat(file)
	testkit.Must(t, err)
	if text := testkit.Read(t, file); info.Mode().Perm() != 0o600 || strings.Contains(file, "login") || !strings.Contains(text, `"0; url=http://127.0.0.1:7878/#login=a&amp;b"`) {
		t.Errorf("%s, %v: %s", file, info.Mode(), text)
	}
}

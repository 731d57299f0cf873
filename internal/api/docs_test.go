package api

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/tests/testkit"
)

// TestTheExamplesOfTheManualWork runs every curl of docs/reference/api.md that talks to
// the socket.
func TestTheExamplesOfTheManualWork(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "api.md"))
	testkit.Must(t, err)
	f := newFake()
	f.log, f.logOver = []byte("epoch 1\n"), true
	f.tell(1)
	s := serve(t, f, Limits{Heartbeat: 20 * time.Millisecond})
	home := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(home, ".curlrc"), []byte("fail-with-body\n"), 0o600))
	commands := 0
	for _, block := range strings.Split(string(text), "```sh\n")[1:] {
		block, _, _ = strings.Cut(block, "\n```")
		for command := range strings.SplitSeq(strings.ReplaceAll(block, "\n ", " "), "\n") {
			if !strings.HasPrefix(command, "curl") {
				continue
			}
			commands++
			endless := strings.Contains(command, "/v1/events")
			if endless {
				command += " | head -n 10" // a heartbeat tells curl that nobody reads any more
			}
			out, err := curl(t, home, s.socket, command)
			if err != nil || endless && !strings.Contains(out, "id: 1\ndata: ") {
				t.Errorf("%s\n%v: %s", command, err, out)
			}
		}
	}
	if commands < 20 {
		t.Errorf("only %d examples were found", commands)
	}
}

func curl(t *testing.T, home, socket, command string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.Dir = home
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "SOCK=" + socket, "CURL_HOME=" + home, "HOME=" + home}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestThePageHasEveryPath: the page shows every path of the description, and no
// others.
func TestThePageHasEveryPath(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "api.md"))
	testkit.Must(t, err)
	var forms []*regexp.Regexp
	for path := range describe("0").Paths {
		form := regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(regexp.QuoteMeta(path), `[a-z0-9]+`)
		forms = append(forms, regexp.MustCompile("^"+form+"$"))
		if !regexp.MustCompile(form + `\b`).Match(page) {
			t.Errorf("%s is not on the page", path)
		}
	}
	for _, shown := range regexp.MustCompile(`/v1/[a-z0-9/]+`).FindAllString(string(page), -1) {
		if !slices.ContainsFunc(forms, func(f *regexp.Regexp) bool { return f.MatchString(shown) }) {
			t.Errorf("the page shows %s, which does not exist", shown)
		}
	}
}

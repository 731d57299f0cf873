package batch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/tests/testkit"
)

// TestALogDirectoryThatOthersPreparedIsRefused: whatever another user may have
// left there is neither followed nor used.
func TestALogDirectoryThatOthersPreparedIsRefused(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("giving files to others needs root")
	}
	const other = 12345
	for _, test := range []struct {
		name    string
		prepare func(dir, logs, victim string) error
		why     string // empty: it is fine
	}{
		{"nothing is there", func(string, string, string) error { return nil }, ""},
		{"the directory is another's", func(_, logs, _ string) error { return errors.Join(os.Mkdir(logs, 0o755), os.Chown(logs, other, other)) }, "belongs to user 12345"},
		{"all may write to it", func(_, logs, _ string) error { return errors.Join(os.Mkdir(logs, 0o755), os.Chmod(logs, 0o777)) }, "can be written to by other users"},
		{"another group may write to it", func(_, logs, _ string) error {
			return errors.Join(os.Mkdir(logs, 0o755), os.Chown(logs, 0, other), os.Chmod(logs, 0o775))
		}, "can be written to by other users"},
		{"the user's own group may write to it", func(_, logs, _ string) error { return errors.Join(os.Mkdir(logs, 0o755), os.Chmod(logs, 0o775)) }, ""},
		{"it is a link of another's", func(dir, logs, _ string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "mine"), 0o755), os.Symlink("mine", logs), os.Lchown(logs, other, other))
		}, "belongs to user 12345"},
		{"it is a link of the user's own", func(dir, logs, _ string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "mine"), 0o755), os.Symlink("mine", logs))
		}, ""},
		{"a link of the user's own to another's directory", func(dir, logs, _ string) error {
			theirs := filepath.Join(dir, "theirs")
			return errors.Join(os.Mkdir(theirs, 0o755), os.Chown(theirs, other, other), os.Symlink(theirs, logs))
		}, "belongs to user 12345"},
		{"all may write around it", func(dir, _, _ string) error { return os.Chmod(dir, 0o777) }, "could be replaced"},
		{"all may write around it, but not replace it", func(dir, _, _ string) error { return os.Chmod(dir, 0o777|os.ModeSticky) }, ""},
		{"the jobs are another's", func(_, logs, _ string) error {
			jobs := filepath.Join(logs, "jobs")
			return errors.Join(os.MkdirAll(jobs, 0o755), os.Chown(jobs, other, other))
		}, "belongs to user 12345"},
		{"the board is a link of another's", func(_, logs, victim string) error {
			board := filepath.Join(logs, "status.txt")
			return errors.Join(os.Mkdir(logs, 0o755), os.Symlink(victim, board), os.Lchown(board, other, other))
		}, "belongs to user 12345"},
		{"the journal has another name", func(_, logs, victim string) error {
			return errors.Join(os.Mkdir(logs, 0o755), os.Link(victim, filepath.Join(logs, "journal.jsonl")))
		}, "has 2 hard links"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			victim := filepath.Join(t.TempDir(), "victim")
			testkit.Write(t, victim, "treasure")
			logs := filepath.Join(dir, "berth_logs")
			testkit.Must(t, test.prepare(dir, logs, victim))
			_, err := openLayout(logs, "/nowhere", isNetwork(false))
			if test.why == "" && err != nil || test.why != "" && (err == nil || !strings.Contains(err.Error(), test.why)) {
				t.Errorf("it is opened with %v, expected %q", err, test.why)
			}
			if text := testkit.Read(t, victim); text != "treasure" {
				t.Errorf("the victim's file holds %q", text)
			}
		})
	}
}

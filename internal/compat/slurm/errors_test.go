package slurm_test

import (
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/tests/testkit"
)

// TestErrorsAndASetUp: --error and a set-up do not replace each other, and a user
// finds the file.
func TestErrorsAndASetUp(t *testing.T) {
	dir := t.TempDir()
	run := runner(newBerth(t, dir))
	testkit.Write(t, filepath.Join(dir, "both.sh"), "#!/bin/sh\n#SBATCH -J both -o %j.out --error=script.err\n#BERTH --setup 'A=script; export A'\necho \"$A\"\necho wrong >&2\n", 0o755)
	for _, row := range []struct {
		words   []string
		a, file string
	}{
		{[]string{"sbatch", "--parsable", "both.sh"}, "script", "script.err"},
		{[]string{"sbatch", "--parsable", "-e", "%x-%j.err", "both.sh"}, "script", "both-ID.err"},
		{[]string{"berth", "submit", "--quiet", "--setup", "A=flag; export A", "both.sh"}, "flag", "script.err"},
	} {
		id, err := run(row.words[0], row.words[1:]...)
		testkit.Must(t, err)
		_, err = run("berth", "wait", id)
		testkit.Must(t, err)
		file := strings.ReplaceAll(row.file, "ID", id)
		if out, errs := testkit.Read(t, filepath.Join(dir, id+".out")), testkit.Read(t, filepath.Join(dir, file)); out != row.a+"\n" || errs != "wrong\n" {
			t.Errorf("%q: %q, errors %q", row.words, out, errs)
		}
		if got := run.answer(t, "berth show "+id); !strings.Contains(got, " errors "+file+" ") {
			t.Errorf("berth show: %s", got)
		}
		if got := run.answer(t, "scontrol show job "+id); !strings.Contains(got, "StdErr="+file+" ") {
			t.Errorf("scontrol show job: %s", got)
		}
	}
}

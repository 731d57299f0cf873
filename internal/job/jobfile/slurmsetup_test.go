package jobfile

import (
	"testing"

	"berth/internal/job"
)

// TestJoinSetup: a set-up and a redirection of errors each replace only their own kind.
func TestJoinSetup(t *testing.T) {
	for _, row := range []struct{ earlier, later, want string }{
		{"", "a", "a"}, {"a", "b", "b"}, {"a", "", ""}, {"", "", ""},
		{"exec 2>x", "a", "exec 2>x || exit\na"}, {"a", "exec 2>x", "exec 2>x || exit\na"},
		{"exec 2>x || exit\na", "exec 2>>y", "exec 2>>y || exit\na"}, {"exec 2>x || exit\na", "b", "exec 2>x || exit\nb"},
		{"exec 2>x || exit\na", "", "exec 2>x"}, {"exec 2>x", "exec 2>y", "exec 2>y"},
		{"exec 2>x || exit\na", "exec 2>x || exit\na", "exec 2>x || exit\na"},
	} {
		if got := JoinSetup(row.earlier, row.later); got != row.want {
			t.Errorf("%q, then %q: %q, want %q", row.earlier, row.later, got, row.want)
		}
	}
}

func TestErrorFile(t *testing.T) {
	v := &job.View{ID: "7_3", Name: "fit", User: "ann"}
	for pattern, want := range map[string]string{"e.log": "e.log", "%j-%x-%u-%N": "7_3-fit-ann-host", "%A/%a it's": "7/3 it's", "100%%": "100%"} {
		for _, mode := range []string{"truncate", "append"} {
			pairs, _, err := TranslateSlurm([]SlurmOption{{"error", pattern}, {"open-mode", mode}})
			if err != nil || len(pairs) != 1 {
				t.Fatal(pairs, err)
			}
			for _, setup := range []string{pairs[0].Value, JoinSetup("true", pairs[0].Value)} {
				if got := ErrorFile(setup, v, "host"); got != want {
					t.Errorf("%s: %s, want %s", setup, got, want)
				}
			}
		}
	}
	if got := ErrorFile("module load cuda", v, "host"); got != "" {
		t.Errorf("without a redirection: %s", got)
	}
}

package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"berth/internal/cli/session"
	"berth/internal/job/jobfile"
	"berth/internal/tests/testkit"
)

// TestCompletionOffersWhatAJobTakes: what Tab offers for a flag of submit is
// accepted.
func TestCompletionOffersWhatAJobTakes(t *testing.T) {
	tried := 0
	for _, f := range jobfile.Fields() {
		for _, word := range flagChoices[f.FlagName()] {
			if strings.HasSuffix(word, ":") { // the beginning of a value
				word += "model"
			}
			if err := checkPair(jobfile.Pair{Key: f.Key, Value: word}); err != nil {
				t.Errorf("--%s %s: %v", f.FlagName(), word, err)
			}
			tried++
		}
	}
	if tried < 10 {
		t.Errorf("only %d words are of a job's flags", tried)
	}
}

// TestBashCompletesWithoutItsPackage: bash-completion is not installed everywhere.
func TestBashCompletesWithoutItsPackage(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	var script bytes.Buffer
	root := &cobra.Command{Use: "berth"}
	testkit.Must(t, bashCompletion(root, &script))
	script.WriteString(`
compopt() { :; }
berth() { printf "$reply"; }
try() {
    COMPREPLY=()
    __start_berth
    echo "${COMPREPLY[*]}"
}
COMP_WORDS=(berth canc) COMP_CWORD=1 COMP_TYPE=9 reply='cancel\n:4\n'
try
COMP_WORDS=(berth submit --dir di) COMP_CWORD=3 reply=':16\n'
try
`)
	cmd := exec.Command(bash, "--noprofile", "--norc", "-s")
	cmd.Dir, cmd.Stdin = t.TempDir(), &script
	testkit.Must(t, os.Mkdir(filepath.Join(cmd.Dir, "dirs"), 0o755))
	testkit.Write(t, filepath.Join(cmd.Dir, "dial"), "")
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "cancel\ndirs\n" {
		t.Errorf("%v: %q", err, out)
	}
}

func TestTheSimulatedGPUsOfARestart(t *testing.T) {
	how := session.DaemonCommand{Args: []string{"serve"}, Env: []string{"A=1", "BERTH_SIM=2"}}
	if simulateCards(&how, "4"); !slices.Equal(how.Env, []string{"A=1", "BERTH_SIM=4"}) {
		t.Errorf("it starts with %v", how.Env)
	}
}

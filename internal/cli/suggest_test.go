package cli

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"berth/internal/cli/session"
)

func TestAWordOfAnotherToolIsAnsweredWithTheCommandThatDoesIt(t *testing.T) {
	for typed, want := range map[string]string{
		"kill 17":        "berth cancel",
		"scancel 17":     "berth cancel",
		"rm 17":          "berth cancel",
		"ps":             "berth list",
		"squeue":         "berth list",
		"jobs":           "berth list",
		"QSTAT":          "berth list",
		"htop":           "berth top",
		"tail 17":        "berth logs -f",
		"cat 17":         "berth logs",
		"sbatch x.sh":    "berth submit",
		"srun x":         "berth submit -i",
		"sinfo":          "berth gpus",
		"nvidia-smi":     "berth gpus",
		"sacct":          "berth history",
		"pause 17":       "berth hold",
		"resume 17":      "berth release",
		"rerun 17":       "berth requeue",
		"shutdown":       "berth stop",
		"explain 17":     "berth why",
		"drain 0":        "berth gpu drain",
		"gpu list":       "berth gpus",
		"gpu disable 0":  "berth gpu pause",
		"suspend 17":     "berth park",
		"group rm io":    "berth group remove",
		"token rm 3":     "berth token revoke",
		"debug dump":     "berth debug snapshot",
		"canecl 17":      "berth cancel", // a slip of the fingers
		"gpu puase 0":    "berth gpu pause",
		"sumbit -- true": "berth submit",
	} {
		var out, errOut bytes.Buffer
		code := Main(strings.Fields(typed), &out, &errOut)
		if want := "\nhint: did you mean " + want + "?\n"; code != int(session.ExitUsage) || !strings.HasSuffix(errOut.String(), want) {
			t.Errorf("berth %s: exit status %d, it says %q, want %q", typed, code, errOut.String(), want)
		}
	}
	var out, errOut bytes.Buffer
	if Main([]string{"help", "squeue"}, &out, &errOut); !strings.Contains(errOut.String(), "hint: did you mean berth list? all topics: berth help") {
		t.Errorf("berth help squeue: %s", &errOut)
	}
	errOut.Reset()
	if Main([]string{"help", "man"}, &out, &errOut); !strings.HasSuffix(errOut.String(), "\nhint: berth help --man DIR writes the man pages; all topics: berth help\n") {
		t.Errorf("berth help man: %s", &errOut)
	}
	if beginsWord("Run a file of commands", "man") || !beginsWord("The [limits] section", "Limit") {
		t.Error("a heading has the word only at the beginning of one of its own")
	}
	for typed, after := range map[string]string{"queue": "", "ls": "", "gpu xyzzyx": "commands: clear, ", "xyzzyxyz": "see berth --help"} {
		var out, errOut bytes.Buffer
		t.Setenv("BERTH_SOCKET", "/nonexistent/sock")
		Main(strings.Fields(typed), &out, &errOut)
		if strings.Contains(errOut.String(), "did you mean") || !strings.Contains(errOut.String(), after) {
			t.Errorf("berth %s says %q", typed, errOut.String())
		}
	}
}

// TestEverySuggestionCanBeTyped: each word leads to one command, which exists
// and is not called by that word itself.
func TestEverySuggestionCanBeTyped(t *testing.T) {
	root := newRoot()
	for after, commands := range elsewhere {
		seen := map[string]bool{}
		for _, command := range slices.Sorted(maps.Keys(commands)) {
			found, rest, err := root.Find(strings.Fields(command))
			if err != nil || found == root && command != "--version" || len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
				t.Errorf("there is no berth %s", command)
			}
			for word := range strings.FieldsSeq(commands[command]) {
				if seen[word] {
					t.Errorf("%s %s means two commands", after, word)
				}
				seen[word] = true
				words := append(strings.Fields(after)[1:], word)
				if cmd, rest, err := root.Find(words); err == nil && len(rest) == 0 && cmd != root {
					t.Errorf("%s %s is a command itself", after, word)
				}
			}
		}
	}
}

// TestAVerbIsMadeAlone: what names a verb makes that one, and only that one.
func TestAVerbIsMadeAlone(t *testing.T) {
	for _, v := range verbs() {
		if made := newRoot(v.name, "word").Commands(); len(made) != 1 || made[0].Name() != v.name {
			t.Errorf("berth %s makes %d commands", v.name, len(made))
		}
	}
	for _, words := range [][]string{nil, {"help", "list"}, {"ls"}, {"--host", "a", "list"}, {"__complete", "list", ""}} {
		if made := newRoot(words...).Commands(); len(made) < len(verbs()) {
			t.Errorf("berth %q makes only %d commands", words, len(made))
		}
	}
}

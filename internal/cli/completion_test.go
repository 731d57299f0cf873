package cli

import (
	"testing"

	"berth/internal/jobfile"
)

// TestCompletionOffersWhatAJobTakes: what Tab offers for a flag of submit is
// accepted.
func TestCompletionOffersWhatAJobTakes(t *testing.T) {
	tried := 0
	for _, f := range jobfile.Fields() {
		for _, word := range flagChoices[f.FlagName()] {
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

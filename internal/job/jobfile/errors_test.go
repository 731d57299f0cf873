package jobfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"berth/internal/job"
	"berth/internal/tests/testkit"
)

var update = testkit.Update

// broken is one file per mistake, in the order of the golden messages.
var broken = []struct{ sentence, text string }{
	{"an unknown key, with the nearest", "[vrma=10G] run"},
	{"an unknown key that resembles nothing", "[xyzzyplugh=1] run"},
	{"a shell test without its space", "[-f x ] && run"},
	{"not a size", "ok\n\n[vram=12Q] run"},
	{"a size of zero", "[vram=0] run"},
	{"not a time", "[timeout=1:75] run"},
	{"a negative count", "[gpus=-1] run"},
	{"an id twice", "[ids=0-3,2] run"},
	{"a range backwards", "[allow=3-1] run"},
	{"too many retries", "[retries=1001] run"},
	{"an unknown choice", "[on_timeout=stop] run"},
	{"a switch with a strange value", "[exclusive=maybe] run"},
	{"a signal that cannot be caught", "[signal=KILL@5] run"},
	{"a name with a control character", "[name=\"a\x1bb\"] run"},
	{"a variable with a bad name", "[env.A-B=1] run"},
	{"a key without its value", "[gpus] run"},
	{"spaces around the equals sign", "[gpus = 2] run"},
	{"an equals sign alone", "[=2] run"},
	{"a value left empty", "[name=] run"},
	{"a block that does not close", "[gpus=2 run it"},
	{"a block that ends with the line", "[gpus=2 run"},
	{"a quote that does not close", "[name=\"a] run"},
	{"text after a closing quote", "[name=\"a\"b] run"},
	{"a bracket in a plain value", "[name=a[1] gpus=2] run"},
	{"a block without a command", "[gpus=2]"},
	{"a block with a comment for a command", "[gpus=2] # later"},
	{"a NUL byte", "run\x00it"},
	{"ids against a count", "[gpus=3 ids=0,1] run"},
	{"ids against no GPU", "[gpus=0 ids=0] run"},
	{"a share of several ids", "[gpus=0.5 ids=0,1] run"},
	{"an id outside allow", "[ids=0,4 allow=0-3] run"},
	{"more GPUs than allow names", "[gpus=3 allow=0,1] run"},
	{"memory of no GPU", "[gpus=0 vram=1G] run"},
	{"an unknown name after", "[name=prep] a\n[after=prpe] b"},
	{"a name that two lines have", "[name=x] a\n[name=x] b\n[after=x] c"},
	{"an unknown condition", "[name=x] a\n[after=x:okay] b"},
	{"a name twice after", "[name=x] a\n[after=x,x:any] b"},
	{"a line that waits for itself", "[name=x after=x] a"},
	{"a circle of three", "[name=a after=c] a\n[name=b after=a] b\n[name=c after=b] c"},
	{"two mistakes in two lines", "[gpus=x] a\nok\n[vram=y] b"},
}

func TestMistakesAreNamedWithWhatIsAllowed(t *testing.T) {
	var got strings.Builder
	for _, row := range broken {
		_, err := Parse("jobs.txt", []byte(row.text+"\n"), job.Defaults())
		if err == nil {
			t.Errorf("%s: accepted", row.sentence)
			continue
		}
		fmt.Fprintf(&got, "# %s\n%v\n\n", row.sentence, err)
	}
	compareGolden(t, "messages.golden", got.String())
}

// compareGolden holds a text against the one that is kept.
func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	golden := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Error(diff)
	}
}

func TestOnlyTheFirstTwentyMistakesAreShown(t *testing.T) {
	_, err := Parse("jobs.txt", []byte(strings.Repeat("[gpus=x] run\n", 25)), job.Defaults())
	var errs *Errors
	if !errors.As(err, &errs) || len(errs.Problems) != 20 || errs.More != 5 {
		t.Fatalf("%#v", err)
	}
	text := err.Error()
	if strings.Count(text, "\n") != 20 || !strings.HasSuffix(text, "\nand 5 more") {
		t.Errorf("%s", text)
	}
}

func TestALongValueIsCutInItsMessage(t *testing.T) {
	_, err := Parse("jobs.txt", []byte("[vram="+strings.Repeat("x", 5000)+"] run"), job.Defaults())
	if err == nil || len(err.Error()) > 300 {
		t.Errorf("%v", err)
	}
}

func TestBoundsOnAFile(t *testing.T) {
	_, err := Parse("jobs.txt", []byte(strings.Repeat("x", maxLineBytes+1)), job.Defaults())
	if err == nil {
		t.Error("a line above the bound passed")
	}
	file, err := Parse("jobs.txt", []byte(strings.Repeat("\n", maxLines)), job.Defaults())
	if err != nil || cap(file.Lines) != 0 {
		t.Errorf("an empty file of many lines: %v, room for %d", err, cap(file.Lines))
	}
	if _, err = Parse("jobs.txt", []byte(strings.Repeat("\n", maxLines+1)), job.Defaults()); err == nil {
		t.Error("more lines than the bound passed")
	}
}

func TestACommandTheKernelCannotTakeIsRefused(t *testing.T) {
	fits := "echo " + strings.Repeat("x", maxCommandBytes-5)
	if _, err := Parse("jobs.txt", []byte(fits+"\n"), job.Defaults()); err != nil {
		t.Errorf("%d bytes: %v", len(fits), err)
	}
	_, err := Parse("jobs.txt", []byte("[vram=1G] "+fits+"x\n"), job.Defaults())
	if err == nil || !strings.Contains(err.Error(), "jobs.txt:1: expected at most 131071 bytes in a command, found 131072") {
		t.Errorf("one byte more: %v", err)
	}
}

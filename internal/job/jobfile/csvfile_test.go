package jobfile

import (
	"errors"
	"testing"

	"berth/internal/job"
)

// seeds: R8
func TestCSVFileKnowsLinesByContentAndOccurrence(t *testing.T) {
	defaults := job.Defaults()
	defaults.Retries = 3
	file, err := ParseCSVFile("f.csv", []byte("0,a.py,,--x 1 --y 2,0\n# c\n5,a.py,,--x 1 --y 2\n0,a.py,,--y 2 --x 1"), Sizes{}, defaults)
	if err != nil || len(file.Lines) != 3 || !file.Unterminated {
		t.Fatalf("%v, %+v", err, file)
	}
	first, second, third := file.Lines[0], file.Lines[1], file.Lines[2]
	if first.Key[:16] != second.Key[:16] || first.Key == second.Key || third.Key[:16] == first.Key[:16] {
		t.Errorf("keys %s, %s, %s", first.Key, second.Key, third.Key)
	}
	if second.Occurrence != 2 || second.Number != 3 || second.Command != "python -u a.py --x 1 --y 2" || second.Spec.Priority != -5 || second.Spec.Retries != 3 {
		t.Errorf("%+v", second)
	}
	for text, want := range map[string]bool{"": false, "0,a.py\n": false, "0,a.py\n# end": false, "0,a.py\n  ": false, "0,a.py": true} {
		if file, _ := ParseCSVFile("f.csv", []byte(text), Sizes{}, defaults); file.Unterminated != want {
			t.Errorf("%q: unterminated %t", text, file.Unterminated)
		}
	}
}

func TestCSVFileTellsMistakesInTheOrderOfTheLines(t *testing.T) {
	sizes, err := ParseSizes("s", []byte(`{"models": {"big": 3}}`))
	if err != nil {
		t.Fatal(err)
	}
	file, err := ParseCSVFile("f.csv", []byte("0,a.py,,--llm big,0-1\nx,b.py\n0,c.py\n"), sizes, job.Defaults())
	var errs *Errors
	if !errors.As(err, &errs) || len(errs.Problems) != 2 || errs.Problems[0].Line != 1 || errs.Problems[1].Line != 2 {
		t.Errorf("%v", err)
	}
	if len(file.Lines) != 1 || file.Lines[0].Number != 3 {
		t.Errorf("good lines %+v", file.Lines)
	}
}

func TestLooksLikeCSV(t *testing.T) {
	for text, want := range map[string]bool{
		"0,/p/a.py\n": true, "# c\n\n 10 ,a.py,,x\n-1,b.py": true, "0,a.py,,\"unclosed\n": true, "\ufeff0,a.py": true, "\"0\",a.py": true,
		"": false, "# c\n": false, "python a.py\n": false, "0,a.py\npython b.py\n": false, "0 a.py,b": false, "[gpus=1] 0,a": false, "sh -c 0,a": false,
	} {
		if LooksLikeCSV([]byte(text)) != want {
			t.Errorf("%q", text)
		}
	}
}

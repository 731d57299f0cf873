package cli

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/jobfile"
)

// TestLinesThatAreAlike: a line gets what its own block says, whatever the line
// before it says.
func TestLinesThatAreAlike(t *testing.T) {
	file, err := jobfile.Parse("jobs.txt", []byte(`a
b
[vram=1G env.A=1] c
[vram=1G env.A=1] d
[vram=1G env.A=2] e
[vram=1G cancel] f
[vram=1G] g
[vram=3000M] g2
[vram=auto] g3
[vram=auto] g4
[vram=2G] g5
g6
[vram=2G] g7
[after=7 name=x] h
[after=8] i
j
`), job.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	defaults := api.Spec{Env: map[string]string{"B": "3"}, VRAM: "7G"}
	specs, lines, err := specsOf(file, defaults)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range file.Lines {
		want, err := blockOf(&line.Spec, defaults)
		want.Command = api.Command{Shell: line.Command}
		if err != nil || !reflect.DeepEqual(specs[i], want) {
			t.Errorf("line %d is %+v; want %+v, %v", line.Number, specs[i], want, err)
		}
		if want := (api.BatchLine{Number: i + 1, Cancel: line.Command == "f"}); !reflect.DeepEqual(lines[i], want) {
			t.Errorf("line %d is sent as %+v", line.Number, lines[i])
		}
	}
}

// TestLinesThatDifferInMemoryAreCheap to send: a file has a hundred thousand.
func TestLinesThatDifferInMemoryAreCheap(t *testing.T) {
	const n = 1000
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "[vram=%dM] true\n", 4000+i)
	}
	file, err := jobfile.Parse("jobs.txt", []byte(text.String()), job.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	each := testing.AllocsPerRun(3, func() { _, _, _ = specsOf(file, api.Spec{}) }) / n
	if each > 3 {
		t.Errorf("%.1f allocations for each line", each)
	}
}

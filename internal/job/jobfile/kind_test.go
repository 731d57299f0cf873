package jobfile

import (
	"slices"
	"testing"
)

func TestAFileIsKnownByItsBeginningAndItsName(t *testing.T) {
	for _, test := range []struct {
		name, head string
		want       Kind
		run        []string
	}{
		{"train.sh", "echo hi\n", Shell, nil},
		{"train", "#!/bin/bash\necho hi\n", Shell, nil},
		{"train.py", "#!/usr/bin/env python3\nimport os\n", Shell, nil},
		{"jobs.yaml", "#!/bin/sh\n", Shell, nil},
		{"train", "\n# a comment\n#BERTH --gpus 2\npython x\n", Shell, nil},
		{"train.txt", "#SBATCH --gpus=2\nsrun python x\n", Shell, nil},
		{"train", "echo #BERTH\n", AnyText, nil},
		{"train", "python x\n", AnyText, nil},
		{"run-0.1", "python x\n", AnyText, nil},
		{"train.py", "import os\n", Source, []string{"python"}},
		{"TRAIN.PY", "#BERTH --gpus 2\nimport os\n", Source, []string{"python"}},
		{"fit.R", "x <- 1\n", Source, []string{"Rscript"}},
		{"a.cu", "int main() {}\n", Source, nil},
		{"nb.ipynb", "{\"cells\": []}", Source, []string{"jupyter", "nbconvert", "--to", "notebook", "--execute"}},
		{"jobs.yaml", "anything\n", SpecFile, nil},
		{"jobs.JSON", "{", SpecFile, nil},
		{"jobs", "command: python x\n", SpecFile, nil},
		{"jobs", "# mine\ngpus: 2\ncommand: python x\n", SpecFile, nil},
		{"jobs", "- command: python x\n", SpecFile, nil},
		{"jobs", "---\ncommand: x\n", SpecFile, nil},
		{"jobs.txt", "[\n {\"command\": \"x\"}]", SpecFile, nil},
		{"jobs", "{\"command\": \"x\"}", SpecFile, nil},
		{"jobs", "\"command\": x", SpecFile, nil},
		{"jobs", "label: python x\n", AnyText, nil},
		{"jobs", "[vram=18G] python x\n", JobLines, nil},
		{"jobs.sh", "[gpus=2] python x\n", JobLines, nil},
		{"jobs.sh", "[ -e x ] && python x\n", Shell, nil},
		{"jobs.txt", "python x\n", JobLines, nil},
		{"jobs.csv", "1,x.py\n", JobLines, nil},
		{"jobs", "#!/usr/bin/env -S berth run\npython x\n", JobLines, nil},
		{"notes.md", "# title\ntext\n", Document, nil},
		{"config.toml", "[scheduling]\n", Document, nil},
		{"a.out", "\x7fELF\x02\x01\x00", Program, nil},
		{"model.pt", "PK\x03\x04\x00\x00", Binary, nil},
		{"train.sh", "", Empty, nil},
		{"jobs.yaml", "\xef\xbb\xbf \n\t\n", Empty, nil},
		{"train", "# only a comment\n", AnyText, nil},
	} {
		got := GuessKind(test.name, []byte(test.head))
		if got.Kind != test.want || !slices.Equal(got.Interpreter, test.run) {
			t.Errorf("%s %q: %+v, want %s %q", test.name, test.head, got, test.want, test.run)
		}
	}
}

package jobfile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"berth/internal/job"
	"berth/internal/job/sweep"
)

func TestSpecFiles(t *testing.T) {
	x := func(line int, said ...string) Item { return Item{Line: line, Shell: "x", Pairs: pairs(said...)} }
	for _, row := range []struct {
		sentence string
		text     string
		want     []Item
	}{
		{"one mapping is one job", "command: x\ngpus: 2\n", []Item{x(1, "gpus=2")}},
		{"a list is a job each", "# two\n- command: x\n\n- command: x\n  name: b\n", []Item{x(2), x(4, "name=b")}},
		{"an indented list is a job each", "  - command: x\n  - command: x\n    gpus: 2\n", []Item{x(1), x(2, "gpus=2")}},
		{"documents follow one another", "%YAML 1.2\n---\ncommand: x\n---\n# nothing\n---\n- command: x\n...\ncommand: x\n", []Item{x(3), x(7), x(9)}},
		{"a document may start on its marker's line", "--- {command: x}\n--- {command: x}\n", []Item{x(1), x(2)}},
		{"a list may stand at its key's own column", "command: x\nafter:\n- 12\n- 13:any\nname: b\n", []Item{x(1, "after=12,13:any", "name=b")}},
		{"a command that is a list is words", "command: [python, a b, 3, true, '']\n", []Item{{Line: 1, Argv: []string{"python", "a b", "3", "true", ""}, Pairs: []Pair{}}}},
		{"a command may have lines", "command: |\n  a\n\n  b # c\nname: n\n", []Item{{Line: 1, Shell: "a\n\nb # c", Pairs: pairs("name=n")}}},
		{"white space around a command is dropped", "command: '  x '\n", []Item{x(1)}},
		{"keys have their one name", "COMMAND: x\nnum_gpus: 2\ngpu-type: A\nchdir: /d\nTime: 90\n", []Item{x(1, "gpus=2", "type=A", "dir=/d", "timeout=90")}},
		{"numbers and booleans keep their text", "command: x\nname: 007\ngpus: 0.50\nexclusive: true\npriority: -3\ntime: 1:30\nbegin: 2036-01-01\n",
			[]Item{x(1, "name=007", "gpus=0.50", "exclusive=true", "priority=-3", "timeout=1:30", "begin=2036-01-01")}},
		{"lists of ids may be lists", "command: x\nids: [1, 3]\nallow: [0-3, 5]\nafter: ['@', 17_3]\narray: [1, 5-7]\nexport: [A, B]\n",
			[]Item{x(1, "ids=1,3", "allow=0-3,5", "after=@,17_3", "array=1,5-7", "export=A,B")}},
		{"variables are a mapping", "command: x\nenv:\n  A: 1\n  b: 'x y'\n  C: ''\n", []Item{x(1, "env.A=1", "env.b=x y", "env.C=")}},
		{"variables may be a list, or keys", "command: x\nenv: [A=1=2, B=]\nenv.C: 3\n", []Item{x(1, "env.A=1=2", "env.B=", "env.C=3")}},
		{"aliases and merged mappings stand for what they name", "- &base\n  command: x\n  vram: 1G\n  env: {A: 1}\n- <<: *base\n  vram: 2G\n- command: x\n  <<: [{name: n}, *base]\n  env: {B: 2}\n",
			[]Item{x(2, "vram=1G", "env.A=1"), x(5, "vram=2G", "env.A=1"), x(7, "env.B=2", "name=n", "vram=1G")}},
		{"a sweep has the form of the API", "command: x\nsweep: {axes: [{names: [a], rows: [[1e-3], ['']]}], metrics: ['max:b']}\n",
			[]Item{{Line: 1, Shell: "x", Axes: []sweep.Axis{{Names: []string{"a"}, Rows: [][]string{{"1e-3"}, {""}}}}, Metrics: []string{"max:b"}}}},
		{"a value may have a name and a tag of the plain kind", "command: &c x\nname: *c\nvram: !!str 5\n", []Item{x(1, "name=x", "vram=5")}},
		{"an explicit key is a key", "? command\n: x\n", []Item{x(1)}},
		{"Windows line ends and a byte order mark are tolerated", "\xef\xbb\xbf- command: x\r\n  gpus: 2\r\n- command: x\r\n", []Item{x(1, "gpus=2"), x(3)}},
		{"JSON is read as written", "{\"command\": \"x\", \"gpus\": 0.50,\n \"name\": \"a\\\"\\u00e9\", \"hold\": false}", []Item{x(1, "gpus=0.50", "name=a\"é", "hold=false")}},
		{"a JSON list is a job each", "[\n{\"command\": \"x\"},\n{\"command\": \"x\", \"env\": {\"A\": 1, \"B\": \"]\"}, \"ids\": [1,3]}\n]\n", []Item{x(2), x(3, "env.A=1", "env.B=]", "ids=1,3")}},
		{"JSON values per line, as programs write them", "{\"command\": \"x\"}\n\n{\"command\": [\"a\", 1e3]}\n", []Item{x(1), {Line: 3, Argv: []string{"a", "1e3"}, Pairs: []Pair{}}}},
		{"what only starts like JSON is YAML", "{command: x, gpus: 2}\n", []Item{x(1, "gpus=2")}},
		{"a list that only starts like JSON is YAML", "[{command: x}, {\"command\": x, name: b}]\n", []Item{x(1), x(1, "name=b")}},
	} {
		t.Run(row.sentence, func(t *testing.T) {
			got, err := ParseSpecs("jobs.yaml", []byte(row.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			for _, item := range got {
				if _, err := Ask(item.Pairs, noon, job.Defaults(), 1000); err != nil {
					t.Errorf("what was read is refused: %v", err)
				}
			}
		})
	}
}

// brokenSpecs is one file per mistake, in the order of the golden messages.
var brokenSpecs = []struct{ sentence, name, text string }{
	{"an empty file", "j.yaml", ""},
	{"a file of comments", "j.yaml", "# later\n---\n"},
	{"an unknown key, with the nearest", "j.yaml", "- command: x\n  vrma: 1G\n"},
	{"a misspelt command", "j.yaml", "comand: x\n"},
	{"no command", "j.yaml", "- command: x\n- name: b\n"},
	{"cancel, which is a jobs file's", "j.yaml", "command: x\ncancel: true\n"},
	{"null for a value", "j.yaml", "command: x\nname:\n"},
	{"null for a value in JSON", "j.json", "{\"command\": \"x\",\n\"name\": null}"},
	{"null for a variable", "j.yaml", "command: x\nenv: {A: }\n"},
	{"null for a job", "j.yaml", "- command: x\n-\n"},
	{"null among words", "j.yaml", "command: [a, ~]\n"},
	{"an empty command", "j.yaml", "command: ' '\n"},
	{"a command of no words", "j.yaml", "command: []\n"},
	{"a command whose program is empty", "j.yaml", "command: ['', a]\n"},
	{"a command that is a mapping", "j.yaml", "command: {a: b}\n"},
	{"a list where one value belongs", "j.yaml", "command: x\nname: [a, b]\n"},
	{"an empty list", "j.yaml", "command: x\nids: []\n"},
	{"a mapping where a value belongs", "j.yaml", "command: x\ngpus: {a: 1}\n"},
	{"a value that is wrong, under the name that was used", "j.yaml", "command: x\ntime: soon\n"},
	{"a sweep without values", "j.yaml", "command: x\nsweep: {a: [1, 2]}\n"},
	{"a sweep with null for a value", "j.yaml", "command: x\nsweep: {axes: [{names: [a], rows: [[1], [~]]}]}\n"},
	{"a sweep twice", "j.yaml", "command: x\nsweep: &s {axes: [{names: [a], rows: [[1]]}]}\nSweep: *s\n"},
	{"an array that is wrong", "j.yaml", "command: x\narray: 3-1\n"},
	{"a beginning that is wrong", "j.yaml", "command: x\nbegin: soon\n"},
	{"a switch that is empty", "j.yaml", "command: x\nhold: ''\n"},
	{"a dependency on half an id", "j.yaml", "command: x\nafter: 12_\n"},
	{"keys that contradict", "j.yaml", "- command: x\n  gpus: 1\n  ids: [0, 1]\n"},
	{"one key by two names", "j.yaml", "command: x\ngpus: 1\nnum_gpus: 2\n"},
	{"one key twice", "j.yaml", "command: x\ngpus: 1\ngpus: 2\n"},
	{"one key twice in JSON", "j.json", "{\"command\": \"x\", \"gpus\": 1, \"gpus\": 2}"},
	{"a variable twice", "j.yaml", "command: x\nenv: [A=1, A=2]\n"},
	{"a variable without its value", "j.yaml", "command: x\nenv: [A]\n"},
	{"a variable with a bad name", "j.yaml", "command: x\nenv: {A-B: 1}\n"},
	{"text where a job belongs", "j.yaml", "- x\n"},
	{"text where jobs belong", "j.yaml", "hello\n"},
	{"a list in a list", "j.yaml", "- [{command: x}]\n"},
	{"a character YAML keeps for itself", "j.yaml", "- command: x\n\n- command: y\n  after: @\n"},
	{"a quote that does not close", "j.yaml", "command: \"x\n"},
	{"a tab for indentation", "j.yaml", "env:\n\tA: 1\n"},
	{"an alias of nothing", "j.yaml", "- command: *x\n"},
	{"an alias of another document", "j.yaml", "command: &x a\n---\ncommand: *x\n"},
	{"an alias of a document that has ended", "j.yaml", "- command: &x a\n...\n- command: *x\n"},
	{"an alias of what it is in", "j.yaml", "command: &x [a, *x]\n"},
	{"a merge of something else than a mapping", "j.yaml", "command: x\n<<: [1]\n"},
	{"a tag with a meaning of its own", "j.yaml", "command: !!binary eA==\n"},
	{"a key that is a list", "j.yaml", "? [a]\n: x\n"},
	{"JSON that breaks off", "j.json", "[{\"command\": \"x\"},\n"},
	{"JSON with a comma too many", "j.json", "[{\"command\": \"x\"},\n]\n"},
	{"a JSON line that is wrong", "j.jsonl", "{\"command\": \"x\"}\n{\"command\": x}\n{\"command\": \"x\"}\n"},
	{"what is neither JSON nor YAML", "-", "{\"command\": \"x\"\n \"gpus\": 2}\n"},
	{"a number as JSON", "j.json", "\n17"},
	{"bytes that are no text", "j.yaml", "command: x\nname: \xff\n"},
	{"a NUL byte in JSON", "j.json", "{\"command\": \"a\\u0000b\"}"},
	{"a NUL byte in a name", "j.json", "{\"command\": \"x\", \"name\": \"a\\u0000b\"}"},
	{"several mistakes in several jobs", "j.yaml", "- command: x\n  gpus: a\n  vram: b\n- gpus: c\n- command: ok\n"},
	{"brackets without end", "j.yaml", "command: " + strings.Repeat("[", 1000)},
	{"entries without end", "j.yaml", "command:\n  " + strings.Repeat("- ", 1000)},
	{"JSON nested without end", "j.json", "{\"command\": " + strings.Repeat("[", 70) + strings.Repeat("]", 70) + "}"},
	{"blank lines without end", "j.yaml", "command: x\nname: |\n  a\n" + strings.Repeat("\n", maxBlankLines+1)},
	{"a command too long for the system", "j.yaml", "command: " + strings.Repeat("x", maxCommandBytes+1)},
	{"an entry too long for YAML", "j.yaml", "- command: x\n- command: x\n  setup: " + strings.Repeat("x", maxChunkBytes)},
}

func TestMistakesInSpecFiles(t *testing.T) {
	var got strings.Builder
	for _, row := range brokenSpecs {
		items, err := ParseSpecs(row.name, []byte(row.text))
		if err == nil || items != nil {
			t.Errorf("%s: accepted as %v", row.sentence, items)
			continue
		}
		fmt.Fprintf(&got, "# %s\n%v\n\n", row.sentence, err)
	}
	compareGolden(t, "specs.golden", got.String())
}

// TestABombIsDefused: aliases of aliases stand for more values than there are
// atoms, and are refused without making them.
func TestABombIsDefused(t *testing.T) {
	var text strings.Builder
	text.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 60; i++ {
		fmt.Fprintf(&text, "a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9), i-1)
	}
	_, err := ParseSpecs("j.yaml", []byte(text.String()))
	if err == nil || !strings.Contains(err.Error(), "j.yaml:6: expected at most 1000000 values") {
		t.Errorf("%.200v", err)
	}
}

func TestBoundsOnSpecFiles(t *testing.T) {
	if _, err := ParseSpecs("j.yaml", make([]byte, maxSpecBytes+1)); err == nil || !strings.Contains(err.Error(), "j.yaml:1: expected at most 67108864 bytes, found 67108865") {
		t.Errorf("too long: %v", err)
	}
	one := "{\"command\":\"x\"}\n"
	if items, err := ParseSpecs("j.json", []byte(strings.Repeat(one, maxSpecs))); err != nil || len(items) != maxSpecs {
		t.Errorf("as many as allowed: %d %v", len(items), err)
	}
	if _, err := ParseSpecs("j.json", []byte(strings.Repeat(one, maxSpecs+2))); err == nil || err.Error() != "j.json:100001: expected at most 100000 jobs in one file, found more" {
		t.Errorf("more than allowed: %v", err)
	}
	if _, err := ParseSpecs("j.json", []byte("["+strings.Repeat("1,", maxNodes)+"1]")); err == nil || !strings.Contains(err.Error(), "expected at most 1000000 values") {
		t.Errorf("too many values: %v", err)
	}
	var keys strings.Builder
	for i := range maxPairs + 1 {
		fmt.Fprintf(&keys, "\"env.A%d\": 1, ", i)
	}
	if _, err := ParseSpecs("j.json", []byte("{"+keys.String()+"\"command\": \"x\"}")); err == nil || !strings.Contains(err.Error(), "expected at most 4096 keys in one job, found 4098") {
		t.Errorf("too many keys: %v", err)
	}
	_, err := ParseSpecs("j.json", []byte(strings.Repeat("{\"command\":\"x\",\"gpus\":\"x\"}\n", 25)))
	if err == nil || strings.Count(err.Error(), "\n") != 20 || !strings.HasSuffix(err.Error(), "\nand 5 more") {
		t.Errorf("many mistakes: %v", err)
	}
}

// TestALargeYAMLFileIsReadEntryByEntry: as a whole it would be far beyond
// what the library may be given at once.
func TestALargeYAMLFileIsReadEntryByEntry(t *testing.T) {
	const jobs = 10_000
	var text strings.Builder
	for i := range jobs {
		fmt.Fprintf(&text, "- command: python train.py --seed %d\n  vram: 18G\n  env: {SEED: %d}\n", i, i)
	}
	items, err := ParseSpecs("j.yaml", []byte(text.String()))
	if err != nil || len(items) != jobs {
		t.Fatalf("%d %v", len(items), err)
	}
	if last := items[jobs-1]; last.Line != 3*(jobs-1)+1 || last.Shell != "python train.py --seed 9999" {
		t.Errorf("%+v", last)
	}
}

func BenchmarkSpecs(b *testing.B) {
	const jobs = 10_000
	var jsonText, yamlText strings.Builder
	for i := range jobs {
		fmt.Fprintf(&jsonText, "{\"command\": \"python train.py --seed %d\", \"name\": \"t%d\", \"gpus\": 1, \"vram\": \"18G\", \"timeout\": \"2h\", \"env\": {\"A\": 1}}\n", i, i)
		fmt.Fprintf(&yamlText, "- command: python train.py --seed %d\n  name: t%d\n  gpus: 1\n  vram: 18G\n  timeout: 2h\n  env: {A: 1}\n", i, i)
	}
	for name, text := range map[string]string{"json": jsonText.String(), "yaml": yamlText.String()} {
		b.Run(name, func(b *testing.B) {
			start := time.Now()
			for range b.N {
				if _, err := ParseSpecs("j", []byte(text)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*jobs/time.Since(start).Seconds(), "specs/s")
		})
	}
}

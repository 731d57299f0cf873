package reason

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth/internal/tests/testkit"
)

var update = testkit.Update

var jobs = []Holder{{ID: "3"}, {ID: "4", Other: true}, {ID: "5"}, {ID: "6"}}

// reasons has one or more of every kind.
var reasons = []Reason{
	{Kind: WaitsForGPUs, Needs: 2, VRAMMiB: 18432, Cards: obstructed},
	{Kind: WaitsForGPUs, Needs: 1, Idle: true, Type: "a100", Cards: []Card{{GPU: 0}, {GPU: 1, Obstacle: ObstacleTaken, Holders: jobs[:1]}}},
	{Kind: WaitsForGPUs, Needs: 3, Idle: true},
	{Kind: WaitsForGPUs, Needs: 1, Share: 1.0 / 3, VRAMMiB: 8000, Exclusive: true},
	{Kind: WaitsForGPUs, Needs: 2, Share: 0.5, VRAMMiB: 8000, Allow: []int{0, 1, 2}},
	{Kind: WaitsForGPUs, Needs: 2, Idle: true, IDs: []int{3, 1}},
	{Kind: WaitsForCPUs, Amount: 8, Free: 3, Total: 16},
	{Kind: WaitsForCPUs, Amount: 1, Total: 16},
	{Kind: WaitsForMemory, Amount: 8000, Free: 4000, Total: 64000},
	{Kind: WaitsForReadings, Needs: 1, Detail: "nvidia-smi: no answer for 10 s"},
	{Kind: WaitsBehind, Job: "3", Because: &Reason{Kind: WaitsForCPUs, Amount: 8, Free: 3, Total: 16}},
	{Kind: WaitsForTurn, Total: 1},
	{Kind: WaitsForTurn, Total: 3},
	{Kind: WaitsForArray, Pool: "17", Amount: 1, Total: 1},
	{Kind: WaitsForArray, Pool: "17", Amount: 4, Total: 4},
	{Kind: WaitsForLimit, User: "ann", Amount: 4, Total: 4},
	{Kind: WaitsForLimit, Amount: 1, Total: 1},
	{Kind: WaitsForLimit, User: "ann", Own: true, HeldGPUs: 1.0 / 3, MoreGPUs: 2, LimitGPUs: 2},
	{Kind: WaitsForLimit, User: "ann", HeldGPUs: 4, MoreGPUs: 2, LimitGPUs: 4, LimitIsShare: true, NeverBorrows: true, BorrowS: 4 * 3600},
	{Kind: WaitsForShare, User: "ann", HeldGPUs: 4, MoreGPUs: 2, LimitGPUs: 4, LimitIsShare: true, Job: "7"},
	{Kind: StartsNow},
	{Kind: NotQueued, Job: "77"},
	{Kind: TooManyGPUs, Needs: 12, Total: 8},
	{Kind: TooManyGPUs, Needs: 1},
	{Kind: NoSuchGPU, IDs: []int{9}, Cards: []Card{{GPU: 0, Name: "NVIDIA A100"}, {GPU: 1}}},
	{Kind: NoSuchGPU, IDs: []int{1}, Parts: true, Cards: []Card{{GPU: 200}, {GPU: 201}}},
	{Kind: RepeatedGPU, IDs: []int{1}},
	{Kind: TooFewAllowed, Needs: 3, Type: "a100", Allow: []int{0, 1}, Amount: 2, Total: 4, Cards: []Card{{GPU: 0, Name: "NVIDIA A100"}}},
	{Kind: TooFewAllowed, Needs: 2, Total: 3, Parts: true, Cards: []Card{{GPU: 200, Name: "MIG 1g"}}},
	{Kind: TooMuchVRAM, Needs: 1, VRAMMiB: 40000, HoldsMiB: 24064},
	{Kind: TooMuchVRAM, Needs: 2, VRAMMiB: 40000, HoldsMiB: 24064, Share: 0.99},
	{Kind: TooManyCPUs, Amount: 64, Total: 16},
	{Kind: TooMuchMemory, Amount: 500000, Total: 64000},
	{Kind: WaitsForGroup, Pool: "io", Jobs: []string{"14", "17"}, Total: 2},
	{Kind: WaitsForGroup, Pool: "io", Jobs: []string{"14"}, Total: 1},
	{Kind: WaitsForGroup, Pool: "io", Jobs: []string{"14", "17", "18"}, Total: 2},
	{Kind: WaitsForResume, Pool: "io", User: "anna"},
	{Kind: OverUserLimit, User: "ann", MoreGPUs: 6, LimitGPUs: 4},
	{Kind: OverUserLimit, User: "ann", Own: true, MoreGPUs: 6, LimitGPUs: 4, LimitIsShare: true, NeverBorrows: true},
	{Kind: WaitsForLimit, User: "ann", Flag: "-j", Amount: 2, Total: 2},
	{Kind: WaitsForLimit, User: "ann", Flag: "-j", Amount: 1, Total: 1},
	{Kind: OverUserLimit, User: "ann", Own: true, MoreGPUs: 1, LimitGPUs: 0.5},
}

// obstructed has a card with each obstacle, and one with none.
var obstructed = []Card{
	{GPU: 0, FreeMiB: 20000},
	{GPU: 1, Obstacle: ObstacleStale},
	{GPU: 2, Obstacle: ObstacleStale, Detail: "the memory of job 7 is not free yet"},
	{GPU: 3, Obstacle: ObstaclePaused},
	{GPU: 4, Obstacle: ObstacleHealth, Detail: "quarantined: Xid 79"},
	{GPU: 5, Obstacle: ObstacleMemory, Percent: 93.4, Limit: 90},
	{GPU: 6, Obstacle: ObstacleLoad, Percent: 97, Limit: 50},
	{GPU: 7, Obstacle: ObstacleTaken, Holders: jobs},
	{GPU: 8, Obstacle: ObstacleAlone, Holders: jobs[:1]},
	{GPU: 9, Obstacle: ObstacleExclusive, Holders: jobs[1:2]},
	{GPU: 10, Obstacle: ObstacleForeign, ForeignMiB: 1200},
	{GPU: 11, Obstacle: ObstacleShares, FreeShare: 0.25},
	{GPU: 12, Obstacle: ObstacleFree, FreeMiB: 9000},
	{GPU: 13, Obstacle: ObstacleReserved, Holders: jobs[:1]},
	{GPU: 14, Obstacle: ObstacleExcluded},
}

// forecasts differ in what is known.
var forecasts = []Forecast{
	{Now: noon, Low: noon, Mid: noon, High: noon, Basis: Basis{History: 2}},
	{Now: noon, Low: noon, Mid: in(40 * time.Minute), High: in(time.Hour), Basis: Basis{Limit: 1, History: 3, Unknown: 1}},
	{Now: noon, Low: in(time.Minute), Mid: in(2 * time.Minute), High: in(3 * time.Minute), Basis: Basis{Limit: 2}},
	{Now: noon, Low: in(time.Hour), Mid: in(time.Hour), High: in(time.Hour)},
	{Now: noon, Low: in(time.Hour), Mid: in(26 * time.Hour), Basis: Basis{Unknown: 2}},
	{Now: noon, Low: noon, Mid: in(time.Hour)},
	{Now: noon, Low: in(time.Hour)},
	{Now: noon, Low: noon, Basis: Basis{Unknown: 1}},
	{Now: noon, Low: in(time.Hour), Beyond: true, Basis: Basis{InFront: 16384}},
	{Now: noon, None: NoneInfeasible}, {Now: noon, None: NoneLimit}, {Now: noon, None: NoneArray}, {Now: noon, None: NoneGroup}, {Now: noon, None: NonePaused}, {Now: noon, None: NoneUnreadable},
	{Now: noon, None: NoneClosed}, {Now: noon, None: NoneGate}, {Now: noon, None: NoneNotQueued},
}

func in(d time.Duration) time.Time { return noon.Add(d) }

// firsts has every reason to go first.
var firsts = []Behind{
	{ID: "12", User: "bob", Priority: 5, First: FirstPriority},
	{ID: "12", First: FirstShare},
	{ID: "12", First: FirstOvertaken}, {ID: "12", First: FirstWaited}, {ID: "12", First: FirstService},
	{ID: "12", User: "bob", First: FirstUser, HadS: 1800, OwnS: 7200}, {ID: "12", First: FirstShorter}, {ID: "12", First: FirstEarlier},
}

// TestSentencesGolden is what people read, for every value there is.
func TestSentencesGolden(t *testing.T) {
	var b strings.Builder
	said := map[string]bool{}
	for _, r := range reasons {
		said[string(r.Kind)] = true
		fmt.Fprintf(&b, "%s: %s\n", r.Kind, r)
	}
	b.WriteString("\n")
	for _, c := range obstructed {
		next, later := c, c
		next.GPU, later.GPU = c.GPU+1, c.GPU+4
		said[string(c.Obstacle)] = true
		story := CardStory{Card: c, KeptFor: "3"}
		if c.Obstacle == ObstacleFree {
			story.MissingMiB = 9432
		}
		if c.Obstacle == ObstacleShares {
			story.MissingShare = 0.25
		}
		story.say()
		fmt.Fprintf(&b, "%s: %s | %s | %s\n", c.Obstacle, grouped([]Card{c})[0], grouped([]Card{c, next, later})[0], story.What)
	}
	b.WriteString("\n")
	for _, f := range forecasts {
		said[string(f.None)] = true
		fmt.Fprintf(&b, "%s: %s | %s\n", string(f.None), f, f.Start())
	}
	b.WriteString("\n")
	for _, first := range firsts {
		said[string(first.First)] = true
		fmt.Fprintf(&b, "%s: %s, as %s\n", first.First, first, first.because())
	}
	for _, word := range constants(t, "Kind", "Obstacle", "NoForecast", "First") {
		if !said[word] {
			t.Errorf("nothing is said of %s", word)
		}
	}
	golden(t, b.String())
}

func golden(t *testing.T, got string) {
	t.Helper()
	const path = "testdata/sentences.golden"
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("sentences changed (-want +got; -update rewrites them):\n%s", diff)
	}
}

// constants are the values that this package declares of some types.
func constants(t *testing.T, types ...string) (values []string) {
	t.Helper()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) == 0 {
				return true
			}
			name, _ := spec.Type.(*ast.Ident)
			if literal, ok := spec.Values[0].(*ast.BasicLit); ok && name != nil && slices.Contains(types, name.Name) {
				value, _ := strconv.Unquote(literal.Value)
				values = append(values, value)
			}
			return true
		})
	}
	if len(values) < 30 {
		t.Fatalf("found only %q", values)
	}
	return values
}

// TestNothingIsLostOnTheWire: a reason and a story with something in every field
// read back as they were written, and say the same.
func TestNothingIsLostOnTheWire(t *testing.T) {
	story, why := Story{}, Reason{}
	fill(reflect.ValueOf(&story).Elem(), 0)
	fill(reflect.ValueOf(&why).Elem(), 0)
	// Only a decision needs these two; a story says the first in its NoStart.
	story.Expected.None, story.Expected.Behind = "", ""
	for _, value := range []any{&story, &why} {
		data, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		back := reflect.New(reflect.TypeOf(value).Elem()).Interface()
		if err := json.Unmarshal(data, back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(value, back); diff != "" || fmt.Sprint(value) != fmt.Sprint(back) {
			t.Errorf("%s (-written +read):\n%s", data, diff)
		}
	}
	for _, r := range reasons {
		data, err := json.Marshal(r)
		var back Reason
		if err == nil {
			err = json.Unmarshal(data, &back)
		}
		if err != nil || back.String() != r.String() {
			t.Errorf("%s reads back as %q: %v", data, back, err)
		}
	}
}

// fill puts something into every field, so deep.
func fill(v reflect.Value, depth int) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(noon))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), depth)
		}
	case v.Kind() == reflect.Pointer && depth < 2:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), depth)
		fill(v.Index(1), depth)
	case v.Kind() == reflect.String:
		v.SetString("x")
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(7)
	case v.CanFloat():
		v.SetFloat(0.5)
	}
}

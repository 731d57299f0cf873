package cli_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// records reads a file of JSON lines; each line must be an object, or the
// file is one array of them.
func records(ts *testscript.TestScript, name string) []map[string]any {
	var list []map[string]any
	text := ts.ReadFile(name)
	if strings.HasPrefix(text, "[") {
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			ts.Fatalf("%s: %v in %q", name, err, text)
		}
		return list
	}
	for line := range strings.Lines(text) {
		record := map[string]any{}
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			ts.Fatalf("%s: %v in %q", name, err, line)
		}
		list = append(list, record)
	}
	return list
}

// condition is one `path=value` (equal) or `path~regexp` of a query.
type condition struct {
	path, operator, value string
}

var conditionForm = regexp.MustCompile(`^([a-z0-9_.]+)([=~])(.*)$`)

func conditions(ts *testscript.TestScript, args []string) []condition {
	var list []condition
	for _, arg := range args {
		parts := conditionForm.FindStringSubmatch(arg)
		if parts == nil {
			ts.Fatalf("not a condition: %q; want path=value or path~regexp", arg)
		}
		list = append(list, condition{parts[1], parts[2], parts[3]})
	}
	return list
}

func matches(record map[string]any, list []condition) bool {
	for _, c := range list {
		text := valueAt(record, c.path)
		if c.operator == "=" && text != c.value {
			return false
		}
		if c.operator == "~" && !regexp.MustCompile(c.value).MatchString(text) {
			return false
		}
	}
	return true
}

// valueAt is the value at a dotted path: a string as it is, anything else as
// JSON, "absent" where there is nothing.
func valueAt(record map[string]any, path string) string {
	var value any = record
	for word := range strings.SplitSeq(path, ".") {
		object, ok := value.(map[string]any)
		if !ok {
			return "absent"
		}
		if value, ok = object[word]; !ok {
			return "absent"
		}
	}
	if text, ok := value.(string); ok {
		return text
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(encoded)
}

// jsonq FILE [-count=N] CONDITION...: a record meets all conditions; with a
// count, so many do; with !, none does.
func jsonQuery(ts *testscript.TestScript, neg bool, args []string) {
	name, rest := args[0], args[1:]
	want := -1
	if digits, found := strings.CutPrefix(rest[0], "-count="); found {
		n, err := strconv.Atoi(digits)
		ts.Check(err)
		want, rest = n, rest[1:]
	}
	list := conditions(ts, rest)
	found := 0
	for _, record := range records(ts, name) {
		if matches(record, list) {
			found++
		}
	}
	switch {
	case want >= 0 && found != want:
		ts.Fatalf("%d records meet %v, want %d; %s has:\n%s", found, rest, want, name, ts.ReadFile(name))
	case want < 0 && (found > 0) == neg:
		ts.Fatalf("%d records meet %v; %s has:\n%s", found, rest, name, ts.ReadFile(name))
	}
}

// lapse FILE FROM TO SECONDS: between the first record that meets FROM and the
// first after it that meets TO lie at least so many seconds. How many more is
// the machine's affair.
func lapse(ts *testscript.TestScript, neg bool, args []string) {
	refuseNegation(ts, neg)
	from, to := conditions(ts, strings.Fields(args[1])), conditions(ts, strings.Fields(args[2]))
	least, err := strconv.ParseFloat(args[3], 64)
	ts.Check(err)
	var began time.Time
	for _, record := range records(ts, args[0]) {
		at, err := time.Parse(time.RFC3339, valueAt(record, "time"))
		ts.Check(err)
		if began.IsZero() {
			if matches(record, from) {
				began = at
			}
			continue
		}
		if !matches(record, to) {
			continue
		}
		if got := at.Sub(began).Seconds(); got < least {
			ts.Fatalf("%.3f seconds lie between, want %g at least", got, least)
		}
		return
	}
	ts.Fatalf("%s has no %q and then %q:\n%s", args[0], args[1], args[2], ts.ReadFile(args[0]))
}

// jobFields are the fields of a job in --json: the type each has, and
// whether null stands for absent.
var jobFields = map[string]struct {
	kind     string
	nullable bool
}{
	"id": {"string", false}, "name": {"string", false}, "user": {"string", false}, "state": {"string", false},
	"outcome": {"string", true}, "reason": {"string", true}, "priority": {"number", false},
	"command": {"string", false}, "gpus": {"number", false}, "share": {"number", true},
	"vram_mib": {"number", true}, "gpu_ids": {"numbers", true}, "asked_ids": {"numbers", true}, "attempt": {"number", false},
	"submitted_at": {"time", false}, "started_at": {"time", true}, "ended_at": {"time", true},
	"exit_code": {"number", true}, "signal": {"string", true},
	"peak_vram_mib": {"peaks", true}, "avg_util": {"number", true}, "charged_gpus": {"number", true}, "log": {"string", true},
	"idle_since": {"time", true}, "preemptions": {"number", false}, "held": {"boolean", false}, "group": {"string", true}, "batch": {"string", true},
	"parkings": {"number", false}, "parked_s": {"number", false}, "parked_since": {"time", true}, "host_mib": {"number", true},
	"parking": {"string", true}, "park_refused": {"string", true}, "checkpoints": {"object", true}, "slurm": {"object", true},
	"sweep": {"string", true}, "params": {"object", true},
}

var jobStates = []string{"queued", "running", "parked", "finished", "failed", "cancelled"}

// jobshape FILE: every line is an event, and every job in it has exactly the
// fields of the contract.
func jobShape(ts *testscript.TestScript, neg bool, args []string) {
	refuseNegation(ts, neg)
	seen := 0
	for _, record := range records(ts, args[0]) {
		ts.Check(shapeError(record["time"], "time"))
		ts.Check(shapeError(record["event"], "string"))
		object, ok := record["job"].(map[string]any)
		if !ok {
			continue
		}
		seen++
		ts.Check(viewError(object, true))
	}
	if seen == 0 {
		ts.Fatalf("%s tells of no job", args[0])
	}
}

// viewError says where a job is not as the contract has it. A job with more
// fields is one too, unless exactly these are wanted.
func viewError(object map[string]any, exactly bool) error {
	got, want := slices.Sorted(maps.Keys(object)), slices.Sorted(maps.Keys(jobFields))
	if exactly && !slices.Equal(got, want) {
		return fmt.Errorf("a job has the fields %v, want %v", got, want)
	}
	for name, field := range jobFields {
		value, there := object[name]
		if !there {
			return fmt.Errorf("a job has no field %s", name)
		}
		if value == nil && field.nullable {
			continue
		}
		if err := shapeError(value, field.kind); err != nil {
			return fmt.Errorf("field %s: %w", name, err)
		}
	}
	if !slices.Contains(jobStates, object["state"].(string)) {
		return fmt.Errorf("state %v is none of %v", object["state"], jobStates)
	}
	return nil
}

func shapeError(value any, kind string) error {
	ok := false
	switch kind {
	case "string":
		_, ok = value.(string)
	case "number":
		_, ok = value.(float64)
	case "boolean":
		_, ok = value.(bool)
	case "numbers":
		list, isList := value.([]any)
		ok = isList && !slices.ContainsFunc(list, func(v any) bool { return shapeError(v, "number") != nil })
	case "peaks":
		object, isObject := value.(map[string]any)
		ok = isObject
		for card, mib := range object {
			_, err := strconv.Atoi(card)
			ok = ok && err == nil && shapeError(mib, "number") == nil
		}
	case "object":
		_, ok = value.(map[string]any)
	case "time":
		text, _ := value.(string)
		_, err := time.Parse(time.RFC3339, text)
		ok = err == nil
	}
	if !ok {
		return fmt.Errorf("%v is no %s", value, kind)
	}
	return nil
}

package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/job/jobfile"
	"berth/internal/tests/testkit"
)

// document is the description, as a client of it would read it.
func document(t *testing.T) map[string]any {
	t.Helper()
	var d map[string]any
	testkit.Must(t, json.Unmarshal(openAPI("test"), &d))
	return d
}

func TestTheDescriptionIsAsWrittenDown(t *testing.T) {
	now := describedNow(t)
	if *testkit.Update {
		testkit.Must(t, os.WriteFile("openapi.json", now, 0o644))
	}
	if !bytes.Equal(now, []byte(testkit.Read(t, "openapi.json"))) {
		t.Error("the API changed: if that is meant, and nothing was renamed or removed, run the tests of this package with -update")
	}
}

// TestASpecHasEveryFieldOfAJob, in the order in which people see them.
func TestASpecHasEveryFieldOfAJob(t *testing.T) {
	var want, all []string
	var spec Spec
	for _, field := range jobfile.Fields() {
		if field.Where == jobfile.FileOnly || field.Key == "env" {
			continue
		}
		want = append(want, field.Key)
		if !spec.Set(field.Key, "x") {
			t.Errorf("there is no key %s", field.Key)
		}
	}
	for _, pair := range spec.Pairs() {
		all = append(all, pair.Key)
	}
	if !slices.Equal(all, want) || len(all) != reflect.TypeFor[Spec]().NumField()-4 {
		t.Errorf("keys of the API:    %v\nfields of the table: %v", all, want)
	}
}

func TestTheDescriptionIsServed(t *testing.T) {
	s := serve(t, newFake(), Limits{})
	for path, want := range map[string]string{"/openapi.json": `"openapi": "3.1.0"`, "/openapi.yaml": `"openapi": "3.1.0"`} {
		r, err := http.NewRequestWithContext(background(t), "GET", "http://berth"+path, nil)
		testkit.Must(t, err)
		reply, err := unixHTTP(t, s.socket).Do(r)
		testkit.Must(t, err)
		text, err := io.ReadAll(reply.Body)
		reply.Body.Close()
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %.200s, %v", path, text, err)
		}
	}
}

func TestEveryReferenceOfTheDescriptionResolves(t *testing.T) {
	d := document(t)
	var walk func(any)
	walk = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			if ref, isRef := value["$ref"].(string); isRef {
				resolve(t, d, ref)
			}
			for _, inner := range value {
				walk(inner)
			}
		case []any:
			for _, inner := range value {
				walk(inner)
			}
		}
	}
	walk(d)
}

func resolve(t *testing.T, d map[string]any, ref string) map[string]any {
	t.Helper()
	var at any = d
	for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		object, _ := at.(map[string]any)
		at = object[part]
	}
	found, isObject := at.(map[string]any)
	if !isObject {
		t.Fatalf("%s leads nowhere", ref)
	}
	return found
}

// described is one operation of the description.
type described struct {
	method, path string
	about        map[string]any
}

func describedOperations(t *testing.T, d map[string]any) []described {
	var all []described
	for path, item := range d["paths"].(map[string]any) {
		for method, about := range item.(map[string]any) {
			all = append(all, described{strings.ToUpper(method), path, about.(map[string]any)})
		}
	}
	if len(all) < 17 {
		t.Fatalf("only %d operations are described", len(all))
	}
	return all
}

func TestEveryRouteIsDescribed(t *testing.T) {
	all := describedOperations(t, document(t))
	for _, e := range endpoints() {
		op := e.op()
		found := slices.ContainsFunc(all, func(d described) bool { return d.method == op.Method && d.path == op.Path })
		if !found && !op.Hidden {
			t.Errorf("%s %s is not described", op.Method, op.Path)
		}
	}
	for _, op := range all {
		for _, key := range []string{"summary", "description", "operationId"} {
			if text, _ := op.about[key].(string); text == "" {
				t.Errorf("%s %s has no %s", op.method, op.path, key)
			}
		}
	}
}

// TestTheExamplesOfTheDescriptionAreTrue runs each example request and holds
// each example, and each real reply, to its schema.
func TestTheExamplesOfTheDescriptionAreTrue(t *testing.T) {
	d := document(t)
	f := newFake()
	f.log, f.logOver = []byte("epoch 1: loss 0.31\n"), true
	s := serve(t, f, Limits{})
	for _, op := range describedOperations(t, d) {
		t.Run(op.method+" "+strings.ReplaceAll(op.path, "/", "|"), func(t *testing.T) {
			path := op.path
			for _, p := range list(asList(op.about["parameters"])) {
				p := p.(map[string]any)
				if p["in"] == "path" {
					path = strings.ReplaceAll(path, "{"+p["name"].(string)+"}", fmt.Sprint(p["example"]))
				}
				if p["example"] != nil {
					hold(t, d, p["schema"], p["example"], p["name"].(string))
				}
			}
			var body []byte
			if request, has := op.about["requestBody"].(map[string]any); has {
				media := request["content"].(map[string]any)["application/json"].(map[string]any)
				if media["example"] == nil {
					t.Fatal("the request has no example")
				}
				hold(t, d, media["schema"], media["example"], "request")
				body, _ = json.Marshal(media["example"])
			}
			success := ""
			for status, response := range op.about["responses"].(map[string]any) {
				if status < "300" {
					success = status
				}
				holdResponse(t, d, status, response.(map[string]any))
			}
			if op.path == "/v1/jobs/{id}/attach" || op.path == "/v1/events" {
				return // which other tests do
			}
			status, reply := send(t, s, op.method, path, body)
			if fmt.Sprint(status) != success {
				t.Fatalf("the example is answered with %d, not %s: %s", status, success, reply)
			}
			content, _ := op.about["responses"].(map[string]any)[success].(map[string]any)["content"].(map[string]any)
			if media, isJSON := content["application/json"].(map[string]any); isJSON {
				var value any
				testkit.Must(t, json.Unmarshal(reply, &value))
				hold(t, d, media["schema"], value, "real reply")
			}
		})
	}
}

func holdResponse(t *testing.T, d map[string]any, status string, response map[string]any) {
	t.Helper()
	content, _ := response["content"].(map[string]any)
	if content == nil && status != "101" && status != "204" {
		t.Errorf("the reply %s has no content", status)
	}
	for kind, media := range content {
		media := media.(map[string]any)
		if media["example"] == nil {
			t.Errorf("the reply %s %s has no example", status, kind)
			continue
		}
		hold(t, d, media["schema"], media["example"], "reply "+status)
	}
}

func send(t *testing.T, s *running, method, path string, body []byte) (int, []byte) {
	t.Helper()
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	r, err := http.NewRequestWithContext(background(t), method, "http://berth"+path, reader)
	testkit.Must(t, err)
	reply, err := unixHTTP(t, s.socket).Do(r)
	testkit.Must(t, err)
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	testkit.Must(t, err)
	return reply.StatusCode, text
}

func asList(value any) []any {
	values, _ := value.([]any)
	return values
}

// hold checks a value against a schema: as much of JSON Schema as the
// description uses.
func hold(t *testing.T, d map[string]any, schemaValue, value any, where string) {
	t.Helper()
	for _, wrong := range violations(t, d, schemaValue, value, where) {
		t.Error(wrong)
	}
}

func violations(t *testing.T, d map[string]any, schemaValue, value any, where string) []string {
	t.Helper()
	schema, isSchema := schemaValue.(map[string]any)
	if !isSchema {
		return []string{where + ": no schema"}
	}
	if ref, isRef := schema["$ref"].(string); isRef {
		return violations(t, d, resolve(t, d, ref), value, where)
	}
	if options := asList(schema["oneOf"]); options != nil {
		fit := 0
		for _, option := range options {
			if len(violations(t, d, option, value, where)) == 0 {
				fit++
			}
		}
		if fit != 1 {
			return []string{fmt.Sprintf("%s: %v fits %d of its forms", where, value, fit)}
		}
		return nil
	}
	var wrong []string
	if !typeFits(schema["type"], value) {
		return []string{fmt.Sprintf("%s: %v is not %v", where, value, schema["type"])}
	}
	if enum := asList(schema["enum"]); enum != nil && !slices.Contains(enum, value) {
		wrong = append(wrong, fmt.Sprintf("%s: %v is none of %v", where, value, enum))
	}
	switch value := value.(type) {
	case string:
		if _, err := time.Parse(time.RFC3339, value); schema["format"] == "date-time" && err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %s is no time", where, value))
		}
	case []any:
		for i, item := range value {
			wrong = append(wrong, violations(t, d, schema["items"], item, fmt.Sprintf("%s[%d]", where, i))...)
		}
	case map[string]any:
		wrong = append(wrong, objectViolations(t, d, schema, value, where)...)
	}
	return wrong
}

func objectViolations(t *testing.T, d, schema, value map[string]any, where string) []string {
	t.Helper()
	var wrong []string
	for _, key := range asList(schema["required"]) {
		if _, has := value[key.(string)]; !has {
			wrong = append(wrong, fmt.Sprintf("%s: %s is missing", where, key))
		}
	}
	properties, _ := schema["properties"].(map[string]any)
	for key, inner := range value {
		property, known := properties[key]
		switch others := schema["additionalProperties"]; {
		case known:
			wrong = append(wrong, violations(t, d, property, inner, where+"."+key)...)
		case others == false:
			wrong = append(wrong, fmt.Sprintf("%s: there is no key %s", where, key))
		case others == nil && where == "request":
			wrong = append(wrong, fmt.Sprintf("%s: any key may be there", where))
		case others != nil && others != true:
			wrong = append(wrong, violations(t, d, others, inner, where+"."+key)...)
		}
	}
	return wrong
}

func typeFits(kinds, value any) bool {
	if one, isOne := kinds.(string); isOne {
		kinds = []any{one}
	}
	for _, kind := range asList(kinds) {
		fits := false
		switch value := value.(type) {
		case nil:
			fits = kind == "null"
		case bool:
			fits = kind == "boolean"
		case string:
			fits = kind == "string"
		case float64:
			fits = kind == "number" || kind == "integer" && value == float64(int64(value))
		case []any:
			fits = kind == "array"
		case map[string]any:
			fits = kind == "object"
		}
		if fits {
			return true
		}
	}
	return kinds == nil
}

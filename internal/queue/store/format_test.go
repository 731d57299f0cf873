package store

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAnotherFieldIsAnotherFormat: an older berth drops a field that it does not
// know when it writes the job back, unless the number tells it to leave the store
// alone. The fields of each format are in a file of their own.
func TestAnotherFieldIsAnotherFormat(t *testing.T) {
	t.Parallel()
	format := len(migrations())
	fields := fieldsOf(reflect.TypeFor[snapshot](), "")
	slices.Sort(fields)
	file := fmt.Sprintf("testdata/fields-%d.txt", format)
	known, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Fields(string(known)), fields); diff != "" {
		t.Errorf("a job's fields are not those of format %d (-%s +now).\nAdd schema/%04d.sql, where a comment will do if the tables stay as they are, and testdata/fields-%d.txt:\n%s",
			format, file, format+1, format+1, diff)
	}
}

// fieldsOf are the names of what JSON keeps of a type, with those that they are
// in: "spec.env.k".
func fieldsOf(of reflect.Type, in string) (names []string) {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct {
		return []string{strings.TrimSuffix(in, ".")}
	}
	for field := range of.NumField() {
		f := of.Field(field)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			names = append(names, fieldsOf(f.Type, in)...)
		case name != "-":
			names = append(names, fieldsOf(f.Type, in+name+".")...)
		}
	}
	return names
}

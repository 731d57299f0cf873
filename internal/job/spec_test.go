package job

import (
	"reflect"
	"strings"
	"testing"
)

// TestTextsAreAllStrings: one that were left out would not survive the store
// where it is no UTF-8, and would not count against its user's limit.
func TestTextsAreAllStrings(t *testing.T) {
	var spec Spec
	want := fill(reflect.ValueOf(&spec).Elem())
	got := 0
	spec.Texts(func(text *string) {
		if *text != "x" {
			t.Errorf("%q was visited twice", *text)
		}
		*text = "y"
		got++
	})
	if got != want {
		t.Errorf("%d texts of %d in %+v", got, want, spec)
	}
}

// fill sets every string, one in each list, and counts them.
func fill(v reflect.Value) (count int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
		return 1
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		return fill(v.Index(0))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			count += fill(v.Field(i))
		}
	}
	return count
}

// TestCommandHeadIsTheBeginningOfTheCommand, for words whose quotes do not depend
// on what is cut off.
func TestCommandHeadIsTheBeginningOfTheCommand(t *testing.T) {
	for _, spec := range []Spec{
		{}, {Shell: "echo one two"}, {Argv: []string{"a"}}, {Argv: []string{"", "b c", "d'e", strings.Repeat("f", 50)}}, {Argv: []string{strings.Repeat(" ", 50)}},
	} {
		whole := spec.Command()
		for most := range 100 {
			if got, want := spec.CommandHead(most), whole[:min(most, len(whole))]; got != want && !strings.Contains(whole, "'") {
				t.Errorf("%d bytes of %q: %q", most, whole, got)
			} else if len(got) > most || most > len(whole) && got != whole {
				t.Errorf("%d bytes of %q: %q", most, whole, got)
			}
		}
	}
}

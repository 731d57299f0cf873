package api

import (
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"berth/internal/text/problem"
)

// The fields of a request that are in its URL have one of the tags path and query,
// with their name there; about says what they mean, eg gives an example. Both ends are here, so that they
// cannot drift apart.

// Bounds on what a URL may carry.
const (
	maxQueryValues = 1000 // ids or states in one query
	maxValueBytes  = 256  // of one value
	maxPathBytes   = 4096 // of the path of a file
	maxPageLimit   = 10000
	maxID          = 128 // of an id or a name in a path
)

// urlField is a field that is in the URL.
type urlField struct {
	index       []int
	in, name    string // in: path or query
	about       string
	example     string
	least, most int64 // of a number
	bytes       int   // of text
}

// fieldsOf are the fields by their type, which never change.
var fieldsOf sync.Map

// urlFields are those of a request, in order.
func urlFields(t reflect.Type) []urlField {
	if known, ok := fieldsOf.Load(t); ok {
		return known.([]urlField)
	}
	var fields []urlField
	for _, f := range reflect.VisibleFields(t) {
		field := urlField{index: f.Index, in: "query", name: f.Tag.Get("query"), about: f.Tag.Get("about"), example: f.Tag.Get("eg"), most: 1<<31 - 1, bytes: maxValueBytes}
		if name := f.Tag.Get("path"); name != "" {
			field.in, field.name = "path", name
		}
		if field.name == "" {
			continue
		}
		if least, most, bounded := strings.Cut(f.Tag.Get("range"), ".."); bounded {
			field.least, _ = strconv.ParseInt(least, 10, 64)
			field.most, _ = strconv.ParseInt(most, 10, 64)
		}
		if f.Tag.Get("names") == "file" {
			field.bytes = maxPathBytes
		}
		fields = append(fields, field)
	}
	fieldsOf.Store(t, fields)
	return fields
}

// writeURL is a path with the values of a request, and its query.
func writeURL(path string, q any) (string, url.Values) {
	query := url.Values{}
	v := reflect.ValueOf(q).Elem()
	for _, f := range urlFields(v.Type()) {
		value := v.FieldByIndex(f.index)
		if f.in == "path" {
			text, _ := textOf(value)
			path = strings.Replace(path, "{"+f.name+"}", url.PathEscape(text), 1)
			continue
		}
		if list, is := value.Interface().([]string); is && len(list) > 0 {
			query[f.name] = list
		} else if text, needed := textOf(value); needed && !is {
			query.Set(f.name, text)
		}
	}
	return path, query
}

// textOf is a value in a URL, and whether it is not the default.
func textOf(v reflect.Value) (string, bool) {
	switch value := v.Interface().(type) {
	case string:
		return value, value != ""
	case bool:
		return strconv.FormatBool(value), value
	case int:
		return strconv.Itoa(value), value != 0
	case int64:
		return strconv.FormatInt(value, 10), value != 0
	case *int:
		if value != nil {
			return strconv.Itoa(*value), true
		}
	case *time.Time:
		if value != nil {
			return value.Format(time.RFC3339Nano), true
		}
	}
	return "", false
}

// readURL reads the path and the query of a request into q. An unknown key is an
// error: a misspelt filter must not select everything.
func readURL(r *http.Request, q any) error {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return problem.Newf(problem.Invalid, "", "the query of the URL is malformed")
	}
	v := reflect.ValueOf(q).Elem()
	var known []string
	for _, f := range urlFields(v.Type()) {
		if f.in == "path" {
			if err := f.setPath(v.FieldByIndex(f.index), r.PathValue(f.name)); err != nil {
				return err
			}
			continue
		}
		known = append(known, f.name)
		if all, given := values[f.name]; given {
			if found, want := f.set(v.FieldByIndex(f.index), all); want != "" {
				return problem.Newf(problem.Invalid, "", "%s: expected %s, found %s", f.name, want, quoted(found))
			}
		}
	}
	for key := range values {
		if !slices.Contains(known, key) {
			return problem.Newf(problem.Invalid, suggest(key, known), "there is no parameter %s", quoted(key))
		}
	}
	return nil
}

// setPath sets a field to a value of the path. An id or a name is short and without
// control characters.
func (f *urlField) setPath(to reflect.Value, value string) error {
	if to.Kind() == reflect.Int {
		index, err := strconv.Atoi(value)
		if err != nil || index < 0 || index > maxGPU || len(value) > 4 {
			return problem.Newf(problem.NotFound, "", "expected the number of a GPU, found %s", quoted(value))
		}
		to.SetInt(int64(index))
		return nil
	}
	if f.name == "id" && (value == "" || len(value) > maxID || !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl)) {
		return problem.Newf(problem.NotFound, "", "expected an id or a name, found %s", quoted(value))
	}
	to.SetString(value)
	return nil
}

// set sets a field to values of the query. If one of them is not allowed, it says
// which, and what is.
func (f *urlField) set(to reflect.Value, all []string) (found, want string) {
	if to.Kind() == reflect.Slice {
		return setList(to, all)
	}
	value := all[0]
	if len(value) > f.bytes {
		return value, "at most " + strconv.Itoa(f.bytes) + " bytes"
	}
	switch to.Interface().(type) {
	case string:
		to.SetString(value)
	case bool:
		if value != "" && value != "true" && value != "1" && value != "false" && value != "0" {
			return value, "true or false"
		}
		to.SetBool(value != "false" && value != "0")
	case *time.Time:
		if value == "" {
			return
		}
		t, err := time.Parse(time.RFC3339, value)
		if err != nil {
			return value, "a time like 2026-03-01T16:00:00Z"
		}
		to.Set(reflect.ValueOf(&t))
	default:
		if value == "" {
			return
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < f.least || n > f.most {
			return value, "a whole number from " + strconv.FormatInt(f.least, 10) + " to " + strconv.FormatInt(f.most, 10)
		}
		if to.Kind() == reflect.Pointer {
			to.Set(reflect.New(to.Type().Elem()))
			to = to.Elem()
		}
		to.SetInt(n)
	}
	return "", ""
}

// setList accepts a key several times, and commas within a value.
func setList(to reflect.Value, all []string) (found, want string) {
	var list []string
	for _, value := range all {
		for part := range strings.SplitSeq(value, ",") {
			if part == "" {
				continue
			}
			if len(part) > maxValueBytes || len(list) == maxQueryValues {
				return part, "at most 1000 values of 256 bytes"
			}
			list = append(list, part)
		}
	}
	to.Set(reflect.ValueOf(list))
	return "", ""
}

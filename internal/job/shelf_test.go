package job

import (
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"
)

// fields visits every settable field of a value, down to the plain ones.
func fields(v reflect.Value, path string, visit func(path string, v reflect.Value)) {
	if v.Kind() != reflect.Struct || v.Type() == reflect.TypeFor[time.Time]() {
		visit(path, v)
		return
	}
	for i := range v.NumField() {
		fields(v.Field(i), path+"."+v.Type().Field(i).Name, visit)
	}
}

func change(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("changed")
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Struct:
		v.Set(reflect.ValueOf(time.Unix(7, 0)))
	default:
		panic("a field of kind " + v.Kind().String())
	}
}

// TestAShelvedJobComesBackAsItWas: with each field changed, beside a job without the
// change, which is first or second.
func TestAShelvedJobComesBackAsItWas(t *testing.T) {
	t.Parallel()
	plain, count, refused := Job{ID: "1", State: Queued}, 0, 0
	fields(reflect.ValueOf(&plain).Elem(), "", func(path string, v reflect.Value) {
		before := reflect.ValueOf(v.Interface())
		count++
		change(v)
		changed := plain
		v.Set(before)
		if changed.ID == plain.ID {
			changed.ID = "2"
		}
		for _, order := range [][]Job{{plain, changed}, {changed, plain}} {
			s := NewShelf()
			if !s.Takes(&changed) {
				refused++
				continue
			}
			for i := range order {
				s.Put(&order[i])
			}
			for i := range order {
				var got Job
				if !s.Look(order[i].ID, &got) || !reflect.DeepEqual(got, order[i]) {
					t.Errorf("%s: %+v came back as %+v", path, order[i], got)
				}
				s.Drop(order[i].ID)
			}
			if s.Len() != 0 || len(s.kinds) != 0 {
				t.Errorf("%s: %d jobs and %d kinds are left", path, s.Len(), len(s.kinds))
			}
		}
	})
	if count < 90 || refused == 2*count {
		t.Errorf("%d fields, %d refused", count, refused)
	}
}

// TestJobsAreAlikeUnlessAFieldDiffers, other than those that are each job's own.
func TestJobsAreAlikeUnlessAFieldDiffers(t *testing.T) {
	t.Parallel()
	plain := Job{ID: "1", State: Queued}
	own := []string{".ID", ".Seq", ".Key", ".Rank", ".VRAMMiB", ".SubmittedAt", ".Spec.Shell", ".Spec.Name", ".Spec.CancelMarked"}
	fields(reflect.ValueOf(&plain).Elem(), "", func(path string, v reflect.Value) {
		before := reflect.ValueOf(v.Interface())
		change(v)
		changed := plain
		v.Set(before)
		if alike := Alike(&plain, &changed); alike && !slices.Contains(own, path) || alike != Alike(&changed, &plain) {
			t.Errorf("%s: alike: %v", path, alike)
		}
	})
	if other := plain; !Alike(&plain, &other) {
		t.Error("a copy is not alike")
	}
}

// TestAShelvedJobIsSmall bounds what a queued job of 10,000 costs, without its own
// text, with today's number.
func TestAShelvedJobIsSmall(t *testing.T) {
	const n, most = 10_000, 300
	s, at := NewShelf(), time.Unix(7, 0)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range n {
		j := Job{ID: strconv.Itoa(i), Seq: int64(i), Rank: int64(i), State: Queued, User: "ann", SubmittedAt: at, Spec: Defaults()}
		j.Spec.Shell, j.Spec.VRAMMiB = "true", int64(i%100)
		s.Put(&j)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if per := int64(after.HeapAlloc-before.HeapAlloc) / n; per > most || len(s.kinds) != 1 {
		t.Errorf("a job takes %d bytes, at most %d; %d kinds", per, most, len(s.kinds))
	}
	runtime.KeepAlive(&s)
}

package api

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"berth/internal/job"
)

func TestPagesAreTakenApart(t *testing.T) {
	for _, test := range []struct {
		name, page, inside, next string
	}{
		{"as the server writes it", `{"jobs":[{"id":"1"},{"a":[1,2],"b":"],}"}],"next":"7","total":2}`, `{"id":"1"},{"a":[1,2],"b":"],}"}`, "7"},
		{"no jobs", `{"jobs":[],"total":0}`, ``, ""},
		{"quotes and backslashes in text", `{"jobs":[{"n":"a\\\"]}"}],"total":1}`, `{"n":"a\\\"]}"}`, ""},
		{"in another order", `{"next":"9","jobs":[{"id":"1"},{"id":"2"}]}`, `{"id":"1"},{"id":"2"}`, "9"},
		{"with nothing after the jobs", `{"jobs":[{"id":"1"}]}`, `{"id":"1"}`, ""},
		{"with blanks", `{ "jobs": [ {"id":"1"} ], "next": "3" }`, `{"id":"1"}`, "3"},
		{"null", `{"jobs":null}`, ``, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			inside, next, err := splitPage([]byte(test.page))
			if err != nil || string(inside) != test.inside || next != test.next {
				t.Errorf("got %s %q, %v", inside, next, err)
			}
		})
	}
	for _, bad := range []string{"", "{", `{"jobs":[`, `{"jobs":[{"a`, `{"jobs":["\`, `{"jobs":[]`, `{"jobs":[],`, `[]`} {
		if _, _, err := splitPage([]byte(bad)); err == nil {
			t.Errorf("%s was taken for a page", bad)
		}
	}
}

func TestAnyPageTakenApartIsTheSamePage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		page := JobPage{Jobs: []job.View{}, Next: rapid.StringMatching(`[0-9",\]}]{0,3}`).Draw(t, "next")}
		for range rapid.IntRange(0, 5).Draw(t, "jobs") {
			page.Jobs = append(page.Jobs, job.View{Name: rapid.StringMatching(`(\],"total":|\],"next":|["\\\]\[{},a-c]){0,6}`).Draw(t, "name"), GPUIDs: []int{1, 2},
				Params: rapid.MapOfN(rapid.SampledFrom([]string{"total", "next", "jobs"}), rapid.SampledFrom([]string{"", "]", "],"}), 0, 2).Draw(t, "params")})
		}
		data, err := json.Marshal(page)
		if err != nil {
			t.Fatal(err)
		}
		inside, next, err := splitPage(data)
		if err != nil {
			t.Fatal(err)
		}
		var views []job.View
		if err := json.Unmarshal([]byte("["+string(inside)+"]"), &views); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(page.Jobs, views); diff != "" || next != page.Next {
			t.Fatalf("%s %q", diff, next)
		}
	})
}

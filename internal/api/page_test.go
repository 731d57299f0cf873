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
		name, page, inside string
		count              int
		next               string
	}{
		{"as the server writes it", `{"jobs":[{"id":"1"},{"a":[1,2],"b":"],}"}],"next":"7","total":2}`, `{"id":"1"},{"a":[1,2],"b":"],}"}`, 2, "7"},
		{"no jobs", `{"jobs":[],"total":0}`, ``, 0, ""},
		{"quotes and backslashes in text", `{"jobs":[{"n":"a\\\"]}"}],"total":1}`, `{"n":"a\\\"]}"}`, 1, ""},
		{"in another order", `{"next":"9","jobs":[{"id":"1"},{"id":"2"}]}`, `{"id":"1"},{"id":"2"}`, 2, "9"},
		{"with nothing after the jobs", `{"jobs":[{"id":"1"}]}`, `{"id":"1"}`, 1, ""},
		{"with blanks", `{ "jobs": [ {"id":"1"} ], "next": "3" }`, `{"id":"1"}`, 1, "3"},
		{"null", `{"jobs":null}`, ``, 0, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			page, err := splitPage([]byte(test.page))
			if err != nil || string(page.inside) != test.inside || page.count != test.count || page.next != test.next {
				t.Errorf("got %s %d %q, %v", page.inside, page.count, page.next, err)
			}
		})
	}
	for _, bad := range []string{"", "{", `{"jobs":[`, `{"jobs":[{"a`, `{"jobs":["\`, `{"jobs":[]`, `{"jobs":[],`, `[]`} {
		if _, err := splitPage([]byte(bad)); err == nil {
			t.Errorf("%s was taken for a page", bad)
		}
	}
}

func TestAnyPageTakenApartIsTheSamePage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		page := JobPage{Jobs: []job.View{}, Next: rapid.StringMatching(`[0-9",\]}]{0,3}`).Draw(t, "next")}
		for range rapid.IntRange(0, 5).Draw(t, "jobs") {
			page.Jobs = append(page.Jobs, job.View{Name: rapid.StringMatching(`["\\\]\[{},a-c]{0,6}`).Draw(t, "name"), GPUIDs: []int{1, 2}})
		}
		data, err := json.Marshal(page)
		if err != nil {
			t.Fatal(err)
		}
		split, err := splitPage(data)
		if err != nil {
			t.Fatal(err)
		}
		var views []job.View
		if err := json.Unmarshal([]byte("["+string(split.inside)+"]"), &views); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(page.Jobs, views); diff != "" || split.count != len(page.Jobs) || split.next != page.Next {
			t.Fatalf("%s %d %q", diff, split.count, split.next)
		}
	})
}

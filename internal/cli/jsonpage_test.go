package cli

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/reason"
	"berth/internal/machine/site"
	"berth/internal/slurm"
	"berth/internal/tests/testkit"
)

// TestThePageHasEveryJSONKey: each section of docs/reference/json.md lists the
// keys of its object, and no others.
func TestThePageHasEveryJSONKey(t *testing.T) {
	page := testkit.Read(t, "../../docs/reference/json.md")
	for section, objects := range map[string][]any{
		"## Job":                 {job.View{}},
		"## Job in detail":       {api.Detail{}, job.Dependency{}},
		"## Submitted job":       {api.Submitted{}},
		"## What was done":       {api.Acted{}},
		"## Story":               {api.Why{}, reason.Reservation{}},
		"### GPUs of a story":    {reason.CardStory{}, reason.Run{}},
		"### Behind":             {reason.Behind{}},
		"### Expected":           {reason.Forecast{}},
		"### Estimates":          {api.RunGuess{}, api.VRAMGuess{}},
		"## GPU":                 {api.GPU{}, api.GPUJob{}, api.GPUProcess{}, api.GPUXid{}},
		"## Samples":             {api.Samples{}, api.SampleTrack{}, api.Stretch{}},
		"### Points of samples":  {api.SamplePoint{}},
		"## GPU event":           {api.CardEvent{}},
		"## Model":               {modelJSON{}, partJSON{}},
		"### Model in the table": {modelNeedJSON{}},
		"## Release":             {api.Released{}},
		"## Reload":              {api.Reloaded{}},
		"## Config check":        {configChecked{}, configMistake{}},
		"## Statistics":          {api.Stats{}, api.StatsLine{}},
		"## Daemon":              {daemonState{}},
		"## Finding":             {site.Finding{}},
		"## Cluster":             {slurmReport{}, slurm.Node{}, slurm.NodeGPU{}},
		"## Token":               {api.Token{}},
		"## Group":               {api.Group{}},
		"## Topic":               {topicJSON{}},
		"## Events":              {api.Event{}},
	} {
		_, text, found := strings.Cut(page, "\n"+section+"\n")
		if !found {
			t.Errorf("there is no section %s", section)
			continue
		}
		text, _, _ = strings.Cut(text, "\n#")
		table, _, _ := strings.Cut(text[strings.Index(text, "\n| key |")+1:], "\n\n") // the first one
		known := map[string]bool{}
		for i, object := range objects {
			jsonKeys(reflect.TypeOf(object), known)
			if section == "## Job in detail" && i == 0 { // it has a job's keys too
				view := map[string]bool{}
				jsonKeys(reflect.TypeFor[job.View](), view)
				for key := range view {
					delete(known, key)
				}
			}
		}
		for key := range known {
			if !strings.Contains(table, "`"+key+"`") {
				t.Errorf("%s does not list %s", section, key)
			}
		}
		for line := range strings.Lines(table) {
			cells := strings.Split(line, "|")
			for _, key := range regexp.MustCompile("`([a-z_0-9]+)`").FindAllStringSubmatch(cells[1], -1) {
				if !known[key[1]] {
					t.Errorf("%s lists %s, which the object does not have", section, key[1])
				}
			}
		}
	}
}

// jsonKeys collects the keys of a struct, and of those that are part of it.
func jsonKeys(of reflect.Type, keys map[string]bool) {
	for i := range of.NumField() {
		field := of.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && name == "" && field.Type.Kind() == reflect.Struct && field.Type != reflect.TypeFor[time.Time]():
			jsonKeys(field.Type, keys)
		case name != "" && name != "-" && field.Tag.Get("hidden") == "":
			keys[name] = true
		}
	}
}

package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/text"
)

// aPast has two attempts on two GPUs, a peak, a gap and a parked stretch.
func aPast() api.Samples {
	begin := time.Date(2026, 3, 1, 14, 0, 0, 0, time.UTC)
	declared := int64(12 << 10)
	at := func(minute int) time.Time { return begin.Add(time.Duration(minute) * time.Minute) }
	point := func(minute int, mib int64, gap bool) api.SamplePoint {
		util := 50.0
		return api.SamplePoint{At: at(minute), VRAMMiB: &mib, Util: &util, AfterGap: gap}
	}
	back := at(70)
	return api.Samples{Job: "17", From: begin, To: at(180), DeclaredMiB: &declared,
		Tracks: []api.SampleTrack{
			{GPU: 0, Attempt: 1, Points: []api.SamplePoint{point(0, 1024, true), point(5, 8192, false), point(40, 8192, false), point(70, 8192, true), point(90, 15360, false), point(91, 8192, false)}},
			{GPU: 1, Attempt: 1, Points: []api.SamplePoint{point(0, 512, true), point(91, 512, false)}},
			{GPU: 0, Attempt: 2, Points: []api.SamplePoint{point(120, 4096, true), point(180, 4096, false)}},
		},
		Parked: []api.Stretch{{From: at(40), To: &back}},
	}
}

func TestAPlotOfAJobsMemory(t *testing.T) {
	was := time.Local
	time.Local = time.UTC
	t.Cleanup(func() { time.Local = was })
	for name, test := range map[string]struct {
		screen render.Screen
		ascii  bool
	}{
		"plot-80": {render.Screen{Width: 80}, false}, "plot-120": {render.Screen{Width: 120}, false}, "plot-pipe-ascii": {render.Screen{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			test.screen.Out = &out
			past := aPast()
			if err := plotSamples(test.screen, past, test.ascii, past.To); err != nil {
				t.Fatal(err)
			}
			golden(t, name, out.Bytes())
			for line := range strings.Lines(out.String()) {
				if wide := text.Width(strings.TrimRight(line, "\n")); wide > max(80, test.screen.Width) {
					t.Errorf("%d columns: %s", wide, line)
				}
			}
		})
	}
}

func TestWhichTerminalsSpeakUTF8(t *testing.T) {
	for _, test := range []struct {
		env  map[string]string
		want bool
	}{
		{nil, false},
		{map[string]string{"LANG": "en_GB.UTF-8"}, true},
		{map[string]string{"LANG": "C.utf8"}, true},
		{map[string]string{"LANG": "en_GB.UTF-8", "LC_ALL": "C"}, false},
		{map[string]string{"LC_CTYPE": "de_DE.UTF-8", "LANG": "C"}, true},
		{map[string]string{"LANG": "en_GB.UTF-8", "TERM": "dumb"}, false},
	} {
		if got := render.SpeaksUTF8(func(name string) string { return test.env[name] }); got != test.want {
			t.Errorf("%v: %v", test.env, got)
		}
	}
}

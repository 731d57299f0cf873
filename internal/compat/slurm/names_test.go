package slurm

import (
	"strings"
	"testing"
	"time"

	"berth/internal/job"
)

// TestColumns: as Slurm 22.05 fills and cuts them.
func TestColumns(t *testing.T) {
	value := func(f *field) string {
		return map[string]string{"JOBID": "37_[0-3]", "NAME": "waitsforcards_longname", "ST": "PD", "STATE": "PENDING", "NODELIST(REASON)": "(Resources)", "USER": "root", "TIME": "0:00", "NODES": "1", "PARTITION": "gpu", "TIME_LIMIT": "UNLIMITED"}[f.title]
	}
	title := func(f *field) string { return f.title }
	for _, row := range []struct{ format, title, line string }{
		{usualFormat, "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)", "          37_[0-3]       gpu waitsfor     root PD       0:00      1 (Resources)"},
		{longFormat, "             JOBID PARTITION     NAME     USER    STATE       TIME TIME_LIMI  NODES NODELIST(REASON)", "          37_[0-3]       gpu waitsfor     root  PENDING       0:00 UNLIMITED      1 (Resources)"},
		{"%i|%j|%10T|%.10T|", "JOBID|NAME|STATE     |     STATE|", "37_[0-3]|waitsforcards_longname|PENDING   |   PENDING|"},
		{"x", "x", "x"},
	} {
		list, err := formatColumns(row.format, jobFields())
		if err != nil || list.line(title) != row.title || list.line(value) != row.line {
			t.Errorf("%s: %q\n%q, %v", row.format, list.line(title), list.line(value), err)
		}
	}
	list, err := namedColumns("jobarrayid,Name:10,STATE", jobFields())
	if got := list.line(value); err != nil || got != "37_[0-3]            waitsforcaPENDING             " {
		t.Errorf("by name: %q, %v", got, err)
	}
	for _, bad := range []string{"%", "%.5", "%!", "%.5!"} {
		if _, err := formatColumns(bad, jobFields()); err == nil {
			t.Errorf("%s is a format", bad)
		}
	}
	for _, bad := range []string{"", "Nonsense", "Name:x", "Name:5.x"} {
		if _, err := namedColumns(bad, jobFields()); err == nil {
			t.Errorf("%s are columns", bad)
		}
	}
}

func TestTimesOfSlurm(t *testing.T) {
	for _, row := range []struct {
		d           time.Duration
		short, long string
	}{
		{0, "0:00", "00:00:00"}, {62 * time.Second, "1:02", "00:01:02"}, {time.Hour, "1:00:00", "01:00:00"},
		{26*time.Hour + 3*time.Second, "1-02:00:03", "1-02:00:03"}, {11 * time.Hour, "11:00:00", "11:00:00"}, {-time.Second, "0:00", "00:00:00"},
	} {
		if clock(row.d) != row.short || longClock(max(0, row.d)) != row.long {
			t.Errorf("%v: %s %s", row.d, clock(row.d), longClock(row.d))
		}
	}
	now := time.Date(2026, 3, 5, 14, 0, 0, 0, time.Local)
	for word, want := range map[string]string{"2026-03-01": "2026-03-01T00:00:00", "2026-03-01T10:30": "2026-03-01T10:30:00", "09:15": "2026-03-05T09:15:00", "now-2days": "2026-03-03T14:00:00", "now": "2026-03-05T14:00:00", "now-1hour": "2026-03-05T13:00:00", "today": "2026-03-05T00:00:00"} {
		if at, err := when(word, now); err != nil || stamp(&at) != want {
			t.Errorf("%s: %s, %v", word, stamp(&at), err)
		}
	}
	for _, bad := range []string{"soon", "now-", "now-x", "now+2days", "2026-13-01", ""} {
		if at, err := when(bad, now); err == nil {
			t.Errorf("%q is %s", bad, stamp(&at))
		}
	}
}

// TestStatesAndReasons: each of berth's has a word of Slurm's.
func TestStatesAndReasons(t *testing.T) {
	view := func(s job.State, outcome job.Outcome) *job.View { return &job.View{State: s, Outcome: &outcome} }
	for want, v := range map[string]*job.View{
		"PENDING PD": view(job.Queued, ""), "RUNNING R": view(job.Running, ""), "SUSPENDED S": view(job.Parked, ""), "COMPLETED CD": view(job.Finished, job.OK),
		"CANCELLED CA": view(job.Cancelled, job.WasCancelled), "FAILED F": view(job.Failed, "exit:3"), "TIMEOUT TO": view(job.Failed, job.Timeout),
		"OUT_OF_MEMORY OOM": view(job.Failed, job.OOM), "NODE_FAIL NF": view(job.Failed, job.Lost),
	} {
		if long, short := state(v); long+" "+short != want {
			t.Errorf("%s is %s %s", want, long, short)
		}
	}
	queued := func(id, reason string) job.View { return job.View{ID: id, State: job.Queued, Reason: &reason} }
	held := queued("1", "held until released")
	held.Held = true
	entries := line(fold([]job.View{
		held, queued("2", "needs 2 idle GPUs"), queued("3_0", "needs 2 idle GPUs"), queued("3_1", "array 3 already has 1 task running"), queued("3_4", "needs 2"),
		queued("4", "waits for job 1 (running) to end ok"), queued("5", "not before 16:00:00"), queued("6", "array 9 already has 2 tasks running; its limit is 2"), {ID: "7_1", State: job.Running}, queued("8", "waits behind job 2, which needs"),
		queued("9", "group eval is paused by ann"), queued("10", "1 job of group eval are running (4); its limit is 1"),
	}))
	var got []string
	for i := range entries {
		got = append(got, entries[i].id()+" "+entries[i].reason())
	}
	want := "1 JobHeldUser, 2 Resources, 3_[0-1,4] Priority, 4 Dependency, 5 BeginTime, 6 JobArrayTaskLimit, 7_1 None, 8 Priority, 9 JobHeldUser, 10 AssocGrpJobsLimit"
	if strings.Join(got, ", ") != want {
		t.Errorf("%s, want %s", strings.Join(got, ", "), want)
	}
}

// TestAScriptIsReadWhenItIsSubmitted, with the interpreter it names.
func TestAScriptIsReadWhenItIsSubmitted(t *testing.T) {
	for _, row := range []struct{ in, want string }{
		{"#!/bin/bash\necho a\n", "/bin/bash -c #!/bin/bash\necho a\n SELF x"},
		{"#!/bin/bash -l\n", "/bin/bash -l -c #!/bin/bash -l\n SELF x"},
		{"#!/usr/bin/env python3\n", "/usr/bin/env python3 -c #!/usr/bin/env python3\n x"},
		{"echo a\n", ""}, {"", ""}, {"#!\n", ""}, {"#!/usr/bin/perl\n", ""}, {"#!/bin/sh\n\x00", ""},
	} {
		var w wishes
		s, err := w.script(strings.NewReader(row.in), nil)
		got := strings.Join(s.command, " ")
		if i := strings.Index(got, " /"); row.want != "" && strings.Contains(row.want, "SELF") && i > 0 {
			got = got[:strings.LastIndex(got, " /")] + " SELF"
		}
		want := strings.TrimSuffix(row.want, " x")
		if (err != nil) != (row.want == "") || err == nil && got != want {
			t.Errorf("%q runs %q, %v; want %q", row.in, got, err, want)
		}
	}
}

// TestTheJobsThatScancelNames: a comma between tasks is none between jobs, or
// another job would end.
func TestTheJobsThatScancelNames(t *testing.T) {
	for word, want := range map[string]string{
		"17": "17", "17,18": "17 18", "17_3": "17_3", "17_[1,3-5]": "17_1 17_3-5", "2,17_[1,3],4_[0],5": "2 17_1 17_3 4_0 5", "17_[1,3": "17_1 17_3",
	} {
		if got := strings.Join(jobWords(word), " "); got != want {
			t.Errorf("%s names %s, want %s", word, got, want)
		}
	}
}

// TestOptionsOfSbatch: an option that berth ignores takes its value with it.
func TestOptionsOfSbatch(t *testing.T) {
	for _, row := range []struct{ args, want string }{
		{"--reservation lab -M big --nice -p gpu --priority 5 a.sh x", "a.sh x"},
		{"--nice=5 --no-bell -W a.sh", "a.sh"},
		{"-J a --gres gpu:1 a.sh -J b", "a.sh -J b"},
	} {
		var w wishes
		words, err := w.sbatchOptions().parse(strings.Fields(row.args), false)
		if err != nil || strings.Join(words, " ") != row.want {
			t.Errorf("sbatch %s: %q, %v", row.args, words, err)
		}
	}
}

func TestMemoryInUnits(t *testing.T) {
	for _, row := range [][3]string{{"2048M", "", "2048M"}, {"2048M", "G", "2G"}, {"1536M", "G", "1.50G"}, {"64G", "K", "67108864K"}, {"64G", "T", "0.06T"}, {"0", "M", "0"}} {
		if got := inUnits(row[0], row[1]); got != row[2] {
			t.Errorf("%s in %q: %s, want %s", row[0], row[1], got, row[2])
		}
	}
}

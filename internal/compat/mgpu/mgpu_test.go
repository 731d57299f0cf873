package mgpu

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"berth/internal/compat/frontend"
	"berth/internal/job"
	"berth/internal/machine/site"
)

// TestWhereTheMgpuProgramsLook: what the user named, else the usual place, else
// berth's own daemon.
//
// seeds: M2
func TestWhereTheMgpuProgramsLook(t *testing.T) {
	if usualSocket != "/tmp/mgpu_scheduler.sock" {
		t.Errorf("the usual place is %s", usualSocket)
	}
	usual := filepath.Join(t.TempDir(), "usual.sock")
	defer func(socket string) { usualSocket = socket }(usualSocket)
	usualSocket = usual
	asked := false
	c := call{&frontend.Call{Daemon: func(_ context.Context, start bool) (string, error) { asked = start; return "/berths/own.sock", nil }}}
	place := func() string {
		client, err := c.dial(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		return client.Place()
	}
	t.Setenv("BERTH_SOCKET", "")
	if at := place(); at != "/berths/own.sock" || !asked {
		t.Errorf("with nothing there they look at %s", at)
	}
	if err := os.WriteFile(usual, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if at := place(); at != usual {
		t.Errorf("with a server there they look at %s", at)
	}
	t.Setenv("BERTH_SOCKET", "/named.sock")
	if at := place(); at != "/named.sock" {
		t.Errorf("with one named they look at %s", at)
	}
	f := &serverFlags{}
	if places, err := f.places(); err != nil || places.Socket != usual || filepath.Base(places.StateDir) != "mgpu_scheduler" || places.Shared != (os.Geteuid() == 0) {
		t.Errorf("the server's places are %+v, %v", places, err)
	}
}

// TestMgpuUsagesAreWhole: they fit a terminal and end with an example.
func TestMgpuUsagesAreWhole(t *testing.T) {
	for _, p := range []frontend.Program{Server, Srun, Queue, Cancel} {
		var out bytes.Buffer
		if code := p.Main(&frontend.Call{Name: p.Name, Args: []string{"--help"}, Out: &out, Err: &out}); code != 0 {
			t.Errorf("%s --help exits with %d", p.Name, code)
		}
		if !regexp.MustCompile(`(?s)^usage: ` + p.Name + `.*\nExit status: .*\nExample:\n  (sudo )?` + p.Name).MatchString(out.String()) {
			t.Errorf("%s --help says\n%s", p.Name, out.String())
		}
		for line := range strings.Lines(out.String()) {
			if len(strings.TrimRight(line, "\n")) > 80 {
				t.Errorf("%s --help has a long line: %s", p.Name, line)
			}
		}
	}
}

// TestTheQueueStandsInTheOrderItComesUp: what runs is first, what waits for
// something else than its turn is last.
//
// seeds: M20
func TestTheQueueStandsInTheOrderItComesUp(t *testing.T) {
	jobs := []job.View{
		{ID: "1", State: job.Queued}, {ID: "2", State: job.Running}, {ID: "3", State: job.Queued},
		{ID: "4", State: job.Queued}, {ID: "5", State: job.Queued, Priority: 9}, {ID: "6", State: job.Running},
	}
	inTurn(jobs, []string{"3", "1", "7"})
	order := ""
	for _, v := range jobs {
		order += v.ID
	}
	if order != "263154" {
		t.Errorf("they are listed as %s", order)
	}
}

func TestMgpuWordsNameJobsAsTheQueueDoes(t *testing.T) {
	got := withCodes("gpu0 runs job 3, then\njob 17_4; 2 jobs\x1b[2J")
	if want := "gpu0 runs job FVE9KS4E, then job " + job.Code("17_4") + "; 2 jobs�[2J"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, word := range []string{"", "all", "@", "1-3", "17_", "_3", "17_x", "9ABCDEFG", "99999999999999999999", "-1", "ZQFFY52C_1,2", "ZQFFY52C_"} {
		if id, err := idOf(word); err == nil {
			t.Errorf("%q is job %s", word, id)
		}
	}
	for word, want := range map[string]string{"17": "17", "17_3": "17_3", "fve9ks4e": "3"} {
		if id, err := idOf(word); err != nil || id != want {
			t.Errorf("%q is job %s, %v", word, id, err)
		}
	}
}

// TestOldClientsCanPrintWhyTheyAreRefused: mgpu_srun.py prints msg and job_id,
// mgpu_queue.py msg, and all of them look at status first.
//
// seeds: M2
func TestOldClientsCanPrintWhyTheyAreRefused(t *testing.T) {
	var reply map[string]string
	if err := json.Unmarshal([]byte(oldClient), &reply); err != nil {
		t.Fatal(err)
	}
	if reply["status"] != "fail" || !strings.Contains(reply["msg"], "make install-links") || len(oldClient) > 4096 {
		t.Errorf("the reply is %q", oldClient)
	}
	if o := (&serverFlags{}).options(call{&frontend.Call{}}, site.Places{}); o.NotHTTP != oldClient || !o.LimitedLast {
		t.Errorf("the server has %+v", o)
	}
}

package cli

import (
	"bytes"
	"testing"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/cli/session"
)

func TestTheTasksOfAnArrayAreToldInOneLine(t *testing.T) {
	task := func(id, what string, done bool) api.Acted { return api.Acted{ID: id, What: what, Done: done} }
	for _, test := range []struct {
		reply    api.ActReply
		out, err string
		status   int
	}{
		{api.ActReply{Jobs: []api.Acted{task("7_1", "stopping", true), task("7_2", "stopping", true), task("7_3", "cancelled", true)}, Left: map[string]int{"finished": 1400, "failed": 1}},
			"job 7: 3 tasks: 2 stopping, 1 cancelled (left alone: 1 failed, 1,400 finished)\n", "", 0},
		{api.ActReply{Jobs: []api.Acted{task("7_1", "held", true), task("7_2", "held", true), task("8", "held", true), task("9_0", "held", true)}},
			"job 7: 2 tasks: held\njob 8: held\njob 9_0: held\n", "", 0},
		{api.ActReply{Jobs: []api.Acted{task("7_1", "held", true), task("7_2", "it belongs to bob", false)}},
			"job 7_1: held\n", "berth: job 7_2: it belongs to bob\n", 1},
		{api.ActReply{Left: map[string]int{"finished": 2}}, "", "berth: no jobs to hold (left alone: 2 finished)\n", 0},
	} {
		var out, errOut bytes.Buffer
		err := (&action{name: api.ActHold}).report(&session.Session{Screen: render.Screen{Out: &out}, ErrOut: &errOut}, test.reply, nil)
		if out.String() != test.out || errOut.String() != test.err || (err != nil) != (test.status != 0) {
			t.Errorf("said %q, %q, %v; want %+v", out.String(), errOut.String(), err, test)
		}
	}
}

package daemon

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"berth/internal/api"
	"berth/internal/job"
)

// TestTheManualsFirstRequest submits what docs/reference/api.md shows: its second job
// waits for its first, whatever the caller submitted before.
func TestTheManualsFirstRequest(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/reference/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "http://berth/v1/jobs -d '")
	body, _, _ := strings.Cut(rest, "'\n")
	var request api.SubmitRequest
	if err := json.Unmarshal([]byte(body), &request); err != nil {
		t.Fatalf("%v in\n%s", err, body)
	}
	l := newLab(t)
	l.one(sh("true", "hold", "yes"))
	for i := range request.Jobs {
		request.Jobs[i].Set("hold", "yes")
	}
	reply, err := api.Call(l.ctx, l.Client, api.Submit, request)
	if err != nil {
		t.Fatal(err)
	}
	want := []job.Dependency{{Job: reply.Jobs[0].ID, On: job.AfterOK}}
	if diff := cmp.Diff(want, l.job(reply.Jobs[1].ID).After); diff != "" {
		t.Errorf("what the second job waits for (-want +got)\n%s", diff)
	}
}

package soak

import (
	"io"
	"path/filepath"
	"testing"

	"berth/internal/api"
	"berth/internal/tests/testkit"
)

// chatty prints numbered rows until it is told to stop.
const chatty = `
row=0
while ! [ -e "$SOAK/gate" ]; do
	row=$((row + 1))
	echo "row $row of a log that is followed"
	if [ $((row % 50)) -eq 0 ]; then sleep 0.02; fi
done
printf 'no newline at the end'
exit 7
`

// TestFollowThroughKills: who follows a log or waits for a job does so through
// any number of daemons.
func TestFollowThroughKills(t *testing.T) {
	rng := chance(t)
	h := newHost(t, 1)
	b := h.up()
	testkit.Write(t, filepath.Join(h.dir, "chatty.sh"), chatty)
	reply, err := api.Call(h.ctx(), h.client, api.Submit, api.SubmitRequest{
		Jobs: []api.Spec{{Command: api.Command{Shell: "true"}}, {Command: api.Command{Shell: `exec sh "$SOAK/chatty.sh"`}}}, Dir: h.dir, Environ: h.environ(),
	})
	if err != nil {
		t.Fatal(err)
	}
	over, id := reply.Jobs[0].ID, reply.Jobs[1].ID
	h.begin("wait", over).mustEnd(0)
	read := h.read(id)
	logs := h.begin("logs", "-f", id)
	wait := h.begin("wait", over, id)
	// Who was answered once goes on: with a line of the log, with the job that is over.
	testkit.Eventually(t, "the log is followed", func() bool { return len(logs.said()) > 0 })
	testkit.Eventually(t, "the job is waited for", func() bool { return len(wait.said()) > 0 })
	for range 20 {
		seen := len(logs.said())
		b.kill()
		b = h.up()
		// Now and then the next kill comes before anybody is back.
		if rng.IntN(3) > 0 {
			testkit.Eventually(t, "the log is followed again", func() bool { return len(logs.said()) > seen })
		}
	}
	h.openGate()
	logs.mustEnd(0)
	wait.mustEnd(7)
	want := testkit.Read(t, filepath.Join(h.logDir, "jobs", id, "1.log"))
	if got := logs.said(); got != want {
		t.Errorf("logs -f printed %d bytes of %d; they differ at byte %d", len(got), len(want), differ(got, want))
	}
	got := <-read
	if got.err != nil || got.text != want {
		t.Errorf("the client read %d bytes of %d; they differ at byte %d: %v", len(got.text), len(want), differ(got.text, want), got.err)
	}
	t.Logf("%d bytes through 20 kills", len(want))
	if v := h.job(id); outcome(v) != "exit:7" || v.Attempt != 1 {
		t.Errorf("it ended %q in attempt %d", outcome(v), v.Attempt)
	}
	h.down(b)
	h.mustBeClean()
}

func differ(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

type readResult struct {
	text string
	err  error
}

// read follows a log with a program of one's own.
func (h *host) read(id string) <-chan readResult {
	done := make(chan readResult, 1)
	log, err := h.client.Log(h.t.Context(), api.LogQuery{ID: id, Follow: true})
	if err != nil {
		h.t.Fatal(err)
	}
	go func() {
		defer log.Close()
		text, err := io.ReadAll(log)
		done <- readResult{string(text), err}
	}()
	return done
}

// begin starts a verb.
func (h *host) begin(args ...string) *berth {
	h.t.Helper()
	return h.launch(h.verb(args...), nil)
}

package soak

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"sync"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/queue/notify"
	"berth/internal/tests/testkit"
)

// receiver is a webhook that takes its time, so that a kill finds messages on
// their way.
type receiver struct {
	arriving chan struct{} // a message is on its way

	mu       sync.Mutex
	messages map[string]notify.Message
	times    map[string]int // how often each arrived
	changed  []string       // ids that came back with another text
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	data, err := io.ReadAll(request.Body)
	var m notify.Message
	if err != nil || json.Unmarshal(data, &m) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	select {
	case r.arriving <- struct{}{}:
	default:
	}
	<-time.After(100 * time.Millisecond) // that is how slow it is
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, again := r.messages[m.ID]; again && !reflect.DeepEqual(before, m) {
		r.changed = append(r.changed, m.ID)
	}
	r.messages[m.ID] = m
	r.times[m.ID]++
}

// told is how many ends arrived, of which jobs, and how many messages came twice.
func (r *receiver) told() (ends int, jobs map[string]int, repeats int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	jobs = map[string]int{}
	for id, m := range r.messages {
		ends += m.Count()
		for _, f := range m.Facts {
			jobs[f.Job]++
		}
		repeats += r.times[id] - 1
	}
	return ends, jobs, repeats
}

// TestKillWhileMessagesAreSent kills the daemon again and again. Every end is told
// in exactly one message, and a message arrives twice only if a kill came between
// its delivery and the record of that.
func TestKillWhileMessagesAreSent(t *testing.T) {
	kills := 8
	if testing.Short() {
		kills = 4
	}
	rng := chance(t)
	r := &receiver{arriving: make(chan struct{}, 1), messages: map[string]notify.Message{}, times: map[string]int{}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	h := newHost(t, 1)
	spec := api.Spec{Command: api.Command{Shell: "true"}, GPUs: "0", Notify: api.Text("end:webhook:" + server.URL)}
	jobs := map[string]bool{}
	submit := func() {
		reply, err := api.Call(h.ctx(), h.client, api.Submit, api.SubmitRequest{Jobs: []api.Spec{spec, spec}, Dir: h.dir})
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range reply.Jobs {
			jobs[j.ID] = true
		}
	}
	b := h.up()
	for n := range kills {
		submit()
		if n%2 == 0 { // from before the first is told until after it was
			pause(b, time.Duration(rng.IntN(4500))*time.Millisecond)
		} else { // between a delivery and the record of it
			select {
			case <-r.arriving:
			default:
			}
			select {
			case <-r.arriving:
			case <-time.After(testkit.Patience):
				t.Fatal("no message arrives")
			}
		}
		b.kill()
		b = h.up()
	}
	submit()
	testkit.Eventually(t, "every end was told", func() bool { ends, _, _ := r.told(); return ends >= len(jobs) })
	h.down(b)
	ends, told, repeats := r.told()
	r.mu.Lock()
	defer r.mu.Unlock()
	t.Logf("%d ends in %d messages, %d of them twice, %d kills", ends, len(r.messages), repeats, kills)
	if ends != len(jobs) || repeats > kills || len(r.changed) > 0 {
		t.Errorf("%d ends of %d jobs, %d repeats after %d kills, changed %q", ends, len(jobs), repeats, kills, r.changed)
	}
	for id := range jobs {
		if told[id] != 1 {
			t.Errorf("job %s is in %d messages", id, told[id])
		}
	}
	h.mustBeClean()
}

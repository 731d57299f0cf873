package waiting

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"berth/internal/job"
	"berth/internal/queue/store"
)

// TestTextsAreCountedAsTheyAre: after any jobs came, changed and went, the count is
// that of the jobs that are left.
func TestTextsAreCountedAsTheyAre(t *testing.T) {
	environs := []string{"", "an older name", store.BlobName(make([]byte, plainEnviron)), store.BlobName(make([]byte, 10_000)), store.BlobName(make([]byte, 20_000))}
	rapid.Check(t, func(t *rapid.T) {
		r, seq := newRoster(nil), int64(0)
		spec := func() job.Spec {
			return job.Spec{Shell: strings.Repeat("x", rapid.SampledFrom([]int{0, plainText, plainText + 1, 9000}).Draw(t, "text"))}
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			any := rapid.SampledFrom(append([]string{""}, r.IDs...)).Draw(t, "job")
			j := r.Get(any)
			switch {
			case j == nil:
				seq++
				r.Know(&job.Job{ID: fmt.Sprint(seq), Seq: seq, User: rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "user"), Spec: spec(), Environ: rapid.SampledFrom(environs).Draw(t, "environment")})
			case rapid.Bool().Draw(t, "goes"):
				r.Forget(j)
			default:
				j.Spec = spec()
				r.texts.weigh(j)
				r.Know(j.Clone())
			}
		}
		want, seen := map[string]int{}, map[string]bool{}
		left := maps.Clone(r.out)
		for _, j := range left {
			want[j.User] += textBytes(j)
			if key := j.User + " " + j.Environ; !seen[key] {
				seen[key] = true
				want[j.User] += environBytes(j.Environ)
			}
		}
		maps.DeleteFunc(want, func(_ string, bytes int) bool { return bytes == 0 })
		if !maps.Equal(r.texts.users, want) {
			t.Fatalf("counted %v, found %v", r.texts.users, want)
		}
		for _, j := range left {
			r.Forget(j)
		}
		if len(r.texts.users)+len(r.texts.jobs)+len(r.texts.environs) > 0 {
			t.Fatalf("left behind: %+v", r.texts)
		}
	})
}

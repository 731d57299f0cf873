package reason

import (
	"fmt"
	"strings"
)

// Request is what a job asks for, as far as it is put into words.
type Request struct {
	GPUs      int     `json:"gpus"`               // 0: a CPU job
	VRAMMiB   int64   `json:"vram_mib,omitempty"` // per GPU; 0: undeclared
	Share     float64 `json:"share,omitempty"`    // of each of its GPUs
	Exclusive bool    `json:"exclusive,omitempty"`
	Type      string  `json:"type,omitempty"`
	IDs       string  `json:"ids,omitempty"`   // "3,1": exactly these, in this order
	Allow     string  `json:"allow,omitempty"` // "0,1,3": any of these
	CPUs      int     `json:"cpus,omitempty"`
	MemMiB    int64   `json:"mem_mib,omitempty"`
}

// idle reports a job that said nothing of how much of a card it needs.
func (r *Request) idle() bool { return r.GPUs > 0 && r.VRAMMiB == 0 && r.Share == 0 }

// Words is what the request asks for: "2 GPUs with 18432 MiB".
func (r Request) Words() string {
	var b strings.Builder
	switch {
	case r.GPUs == 0:
		return "no GPU" + r.hostWords()
	case r.Share > 0:
		fmt.Fprintf(&b, "share %s of ", fraction(r.Share))
	}
	switch {
	case r.IDs != "":
		b.WriteString(listed(r.IDs))
	case r.idle() && r.GPUs == 1:
		b.WriteString("an idle GPU")
	case r.idle():
		fmt.Fprintf(&b, "%d idle GPUs", r.GPUs)
	default:
		b.WriteString(count(int64(r.GPUs), "GPU"))
	}
	if r.IDs != "" && r.idle() {
		b.WriteString(" idle")
	}
	b.WriteString(limits(r.Type, listed(r.Allow)))
	if r.VRAMMiB > 0 {
		fmt.Fprintf(&b, " with %d MiB", r.VRAMMiB)
		if r.GPUs > 1 {
			b.WriteString(" each")
		}
	}
	if r.Exclusive && !r.idle() {
		b.WriteString(" and no other berth job")
	}
	return b.String() + r.hostWords()
}

func (r *Request) hostWords() string {
	text := ""
	if r.CPUs > 0 {
		text += ", " + count(int64(r.CPUs), "cpu")
	}
	if r.MemMiB > 0 {
		text += fmt.Sprintf(", %d MiB of memory", r.MemMiB)
	}
	return text
}

// listed names the cards of a list such as "3,1".
func listed(ids string) string {
	if ids == "" {
		return ""
	}
	names := strings.Split(ids, ",")
	for i := range names {
		names[i] = "gpu" + names[i]
	}
	return some(names, maxCardsNamed)
}

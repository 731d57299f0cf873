package reason

import (
	"fmt"
	"strings"

	"berth/internal/text"
)

// Request is what a job asks for, as far as the sentences need it.
type Request struct {
	GPUs       int   // 0: a CPU job
	VRAMMiB    int64 // per GPU; 0: undeclared
	Share      float64
	Exclusive  bool
	Type       string
	IDs, Allow []int // exactly these; any of these
	CPUs       int
	MemMiB     int64
}

// idle reports a job that declared neither memory nor a share: it needs idle cards.
func (r *Request) idle() bool { return r.GPUs > 0 && r.VRAMMiB == 0 && r.Share == 0 }

// Words is what the request asks for: "2 GPUs with 18432 MiB".
func (r Request) Words() string {
	var b strings.Builder
	switch {
	case r.GPUs == 0:
		return "no GPU" + r.hostWords()
	case r.Share > 0:
		fmt.Fprintf(&b, "share %s of ", text.Share(r.Share))
	}
	switch {
	case len(r.IDs) > 0:
		b.WriteString(gpus(r.IDs))
	case r.idle() && r.GPUs == 1:
		b.WriteString("an idle GPU")
	case r.idle():
		fmt.Fprintf(&b, "%d idle GPUs", r.GPUs)
	default:
		b.WriteString(text.Count(r.GPUs, "GPU"))
	}
	if len(r.IDs) > 0 && r.idle() {
		b.WriteString(" idle")
	}
	b.WriteString(limits(r.Type, r.Allow))
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
	words := ""
	if r.CPUs > 0 {
		words += ", " + text.Count(r.CPUs, "CPU")
	}
	if r.MemMiB > 0 {
		words += fmt.Sprintf(", %d MiB of memory", r.MemMiB)
	}
	return words
}

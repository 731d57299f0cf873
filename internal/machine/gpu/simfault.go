package gpu

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxSimFaults bounds the file "fault".
const maxSimFaults = 64 << 10

// simFaults are the faults that the file "fault" in the box asks for, one per line:
//
//	unreadable              no sample succeeds
//	hang                    no sample comes back
//	no-processes            no card lists its processes
//	lose CARD               it has fallen off the bus
//	miss CARD               it is missing from the sample, without a fault
//	hang CARD               it does not answer, the others do
//	xid CARD CODE           an Xid, once per change of the file
//	leak CARD MIB           memory in use that no process holds
//	dead-pid CARD PID MIB   a listed process, whether it exists or not
//	ecc CARD N              uncorrected memory errors so far
//	rows CARD [failed]      memory rows are waiting to be remapped, or could not be
//	recovery CARD WORD…     the action the driver asks for
//	util CARD PCT           utilisation, whatever the processes do; -1: unknown
//	park VERB HOW [once]    a checkpoint call goes wrong: see serveSim
type simFaults struct {
	text  string
	lines []simFault
}

type simFault struct {
	kind    string
	card    int // -1: all
	numbers []int64
	text    string
}

// simFaultNumbers is how many numbers follow the card.
var simFaultNumbers = map[string]int{
	"lose": 0, "miss": 0, "hang": 0, "xid": 1, "leak": 1, "dead-pid": 2, "ecc": 1, "rows": 0, "recovery": 0, "util": 1,
}

func (b *simBox) faults() (simFaults, error) {
	file, err := os.Open(filepath.Join(b.dir, "fault"))
	if errors.Is(err, fs.ErrNotExist) {
		return simFaults{}, nil
	}
	if err != nil {
		return simFaults{}, fmt.Errorf("read simulated fault: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxSimFaults))
	if err != nil {
		return simFaults{}, fmt.Errorf("read simulated fault: %w", err)
	}
	faults := simFaults{text: string(data)}
	for line := range strings.Lines(faults.text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		fault, ok := parseSimFault(words)
		if !ok {
			return simFaults{}, fmt.Errorf("unknown simulated fault %q: expected unreadable, hang, no-processes, lose N, miss N, hang N, "+
				"xid N CODE, leak N MIB, dead-pid N PID MIB, ecc N COUNT, rows N [failed], recovery N WORD, util N PCT or park VERB HOW", strings.TrimSpace(line))
		}
		faults.lines = append(faults.lines, fault)
	}
	return faults, nil
}

func parseSimFault(words []string) (simFault, bool) {
	fault := simFault{kind: words[0], card: -1}
	if fault.kind == "park" {
		return fault, len(words) >= 3
	}
	if len(words) == 1 {
		return fault, slices.Contains([]string{"unreadable", "hang", "no-processes"}, fault.kind)
	}
	numbers, known := simFaultNumbers[fault.kind]
	card, err := strconv.Atoi(words[1])
	if !known || err != nil || len(words) < 2+numbers {
		return fault, false
	}
	fault.card = card
	for _, word := range words[2 : 2+numbers] {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return fault, false
		}
		fault.numbers = append(fault.numbers, n)
	}
	fault.text = strings.Join(words[2+numbers:], " ")
	wordy := fault.kind == "recovery" && fault.text != "" || fault.kind == "rows" && (fault.text == "" || fault.text == "failed")
	return fault, wordy || fault.text == "" && fault.kind != "recovery"
}

// has reports whether there is a fault of all cards.
func (f simFaults) has(kind string) bool {
	return slices.ContainsFunc(f.lines, func(fault simFault) bool { return fault.kind == kind && fault.card < 0 })
}

// apply changes a sample by the faults.
func (f simFaults) apply(s *Sample) {
	for _, fault := range f.lines {
		for i := range s.Devices {
			if fault.card < 0 || s.Devices[i].Index == fault.card {
				fault.change(&s.Devices[i])
			}
		}
		fault.remove(s)
	}
}

// change applies a fault to a card that can be read.
func (f simFault) change(d *Device) {
	switch f.kind {
	case "no-processes":
		d.Processes, d.ProcessesKnown = nil, false
	case "leak":
		d.UsedMiB += f.numbers[0]
	case "dead-pid":
		d.UsedMiB += f.numbers[1]
		d.Processes = append(d.Processes, Process{PID: int(f.numbers[0]), UsedMiB: f.numbers[1], UtilPct: -1})
	case "ecc":
		d.Condition.UncorrectedECC = f.numbers[0]
	case "rows":
		d.Condition.RowsPending, d.Condition.RowsFailed = f.text == "", f.text == "failed"
	case "recovery":
		d.Condition.Recovery = f.text
	case "util":
		d.UtilPct = float64(f.numbers[0])
		for i := range d.Processes {
			d.Processes[i].UtilPct = -1
		}
	}
}

// remove takes an unreadable card out of the sample.
func (f simFault) remove(s *Sample) {
	kinds := map[string]Fault{
		"lose": {Kind: FaultLost, Text: "has fallen off the bus"},
		"hang": {Kind: FaultHangs, Text: "does not answer"},
		"miss": {},
	}
	fault, takes := kinds[f.kind]
	i := slices.IndexFunc(s.Devices, func(d Device) bool { return d.Index == f.card })
	if !takes || i < 0 {
		return
	}
	fault.Index, fault.UUID = f.card, s.Devices[i].UUID
	s.Devices = slices.Delete(s.Devices, i, i+1)
	if fault.Kind != "" {
		s.Faults = append(s.Faults, fault)
	}
}

// fresh are the Xids that the file asks for, once per change of the file.
func (s *Sim) fresh(faults simFaults, at time.Time) []Xid {
	s.mu.Lock()
	defer s.mu.Unlock()
	if faults.text == s.raised {
		return nil
	}
	s.raised = faults.text
	var xids []Xid
	for _, f := range faults.lines {
		if card, found := s.box.card(f.card); found && f.kind == "xid" {
			xids = append(xids, Xid{At: at, UUID: card.UUID, Code: int(f.numbers[0])})
		}
	}
	return xids
}

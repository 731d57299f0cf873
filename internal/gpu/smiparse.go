package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// smiRows is what a --query-gpu answer says: the cards that could be read, and
// a sentence for each line that could not.
type smiRows struct {
	devices  []Device
	problems []string
}

// maxProblems bounds the sentences about one answer.
const maxProblems = 16

func (r *smiRows) problem(format string, args ...any) {
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, printable(fmt.Sprintf(format, args...)))
	}
}

// reason is why an answer without one usable card was no use.
func (r *smiRows) reason(out []byte) error {
	if len(r.problems) > 0 {
		return errors.New(r.problems[0])
	}
	return errors.New(firstLine(out))
}

// unknownField reports whether nvidia-smi refused a field it does not know.
func unknownField(out []byte) bool { return bytes.Contains(out, []byte("is not a valid field")) }

// parseMemory reads index, uuid, name, total, [reserved,] used, utilisation.
// A name may hold commas, so the numbers are counted from the end. A card
// without a readable total or use is left out: nothing may be placed on it.
func parseMemory(out []byte, withReserved bool) smiRows {
	numbers := 3
	if withReserved {
		numbers = 4
	}
	var rows smiRows
	seen := map[int]bool{}
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		fields := splitCSV(line)
		index, err := strconv.Atoi(fields[0])
		if err != nil || index < 0 || len(fields) < 3+numbers || seen[index] {
			rows.problem("nvidia-smi said: %s", line)
			continue
		}
		tail := fields[len(fields)-numbers:]
		d := Unknown(index, fields[1], strings.Join(fields[2:len(fields)-numbers], ", "))
		total, totalKnown := parseMiB(tail[0])
		used, usedKnown := parseMiB(tail[numbers-2])
		if !totalKnown || !usedKnown || total == 0 {
			rows.problem("gpu%d (%s) does not tell its memory: total %s, used %s", index, d.Name, tail[0], tail[numbers-2])
			continue
		}
		seen[index] = true
		d.TotalMiB, d.UsedMiB = total, used
		if withReserved {
			d.ReservedMiB, _ = parseMiB(tail[1])
		}
		if pct, err := strconv.ParseFloat(trimUnit(tail[numbers-1], "%"), 64); err == nil && pct >= 0 && pct <= 100 {
			d.UtilPct = pct
		}
		rows.devices = append(rows.devices, d)
	}
	return rows
}

// processList is a card's processes as far as they could be read.
type processList struct {
	processes  []Process
	incomplete bool // a line made no sense: someone may be missing
}

// parseComputeApps reads gpu_uuid, pid, used_memory. It lists no card that
// nobody uses, so each of devices counts as known; but a line that makes no
// sense may be about any of them. A process on a part of a partitioned card
// names the part and not the card: such cards, which cannot tell their
// utilisation, are then not known.
func parseComputeApps(out []byte, devices []Device) (map[string]processList, error) {
	lists := map[string]processList{}
	for _, d := range devices {
		lists[d.UUID] = processList{}
	}
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "No running processes") {
			continue
		}
		fields := splitCSV(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("list GPU processes: nvidia-smi said: %s", printable(line))
		}
		if strings.HasPrefix(fields[0], "MIG-") {
			for _, d := range devices {
				if d.UtilPct < 0 {
					lists[d.UUID] = processList{incomplete: true}
				}
			}
			continue
		}
		pid, err := strconv.Atoi(fields[1])
		if err != nil || pid <= 0 || !strings.HasPrefix(fields[0], "GPU-") {
			return nil, fmt.Errorf("list GPU processes: nvidia-smi said: %s", printable(line))
		}
		list := lists[fields[0]]
		list.processes = append(list.processes, Process{PID: pid, UsedMiB: parseProcessMiB(fields[2])})
		lists[fields[0]] = list
	}
	return lists, nil
}

// parseBusIDs reads uuid, pci.bus_id.
func parseBusIDs(out []byte) map[string]string {
	uuids := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if fields := splitCSV(strings.TrimSpace(line)); len(fields) == 2 && strings.HasPrefix(fields[0], "GPU-") {
			uuids[strings.ToUpper(fields[1])] = fields[0]
		}
	}
	return uuids
}

// parseReport reads the report on processes:
//
//	GPU 00000000:07:00.0
//	    Processes
//	        Process ID                        : 4242
//	            Type                          : C+G
//	            Used GPU Memory               : 1542 MiB
//
// Cards are named as in pci.bus_id. "G" alone is a graphics-only process.
func parseReport(out []byte) (map[string]processList, error) {
	lists := map[string]processList{}
	busID, lastPID := "", false
	for line := range strings.Lines(string(out)) {
		if rest, found := strings.CutPrefix(line, "GPU "); found {
			busID, lastPID = strings.ToUpper(strings.TrimSpace(rest)), false
			lists[busID] = processList{incomplete: true} // until its processes are spoken of
			continue
		}
		key, value, _ := strings.Cut(line, ":")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if busID == "" || key == "" {
			continue
		}
		list := lists[busID]
		switch key {
		case "Processes":
			list.incomplete = value != "" && value != "None"
		case "Process ID":
			pid, err := strconv.Atoi(value)
			lastPID = err == nil && pid > 0
			if lastPID {
				list.processes = append(list.processes, Process{PID: pid, UsedMiB: -1})
			} else {
				list.incomplete = true
			}
		case "Type":
			if lastPID {
				list.processes[len(list.processes)-1].Graphics = value == "G"
			}
		case "Used GPU Memory":
			if lastPID {
				list.processes[len(list.processes)-1].UsedMiB = parseProcessMiB(value)
			}
		}
		lists[busID] = list
	}
	if len(lists) == 0 {
		return nil, fmt.Errorf("list GPU processes: nvidia-smi said: %s", firstLine(out))
	}
	return lists, nil
}

// splitCSV splits a line as nvidia-smi writes it: no quoting.
func splitCSV(line string) []string {
	fields := strings.Split(line, ",")
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
	}
	return fields
}

// parseMiB reads a number of MiB. "[N/A]", "[Not Supported]", "ERR!" and
// their like are not known.
func parseMiB(text string) (int64, bool) {
	mib, err := strconv.ParseInt(trimUnit(text, "MiB"), 10, 64)
	if err != nil || mib < 0 || mib > 1<<40 {
		return 0, false
	}
	return mib, true
}

func parseProcessMiB(text string) int64 {
	if mib, known := parseMiB(text); known {
		return mib
	}
	return -1
}

func trimUnit(text, unit string) string {
	return strings.TrimSpace(strings.TrimSuffix(text, unit))
}

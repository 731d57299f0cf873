package gpu

import (
	"strconv"
	"strings"

	"berth/internal/text"
)

// topology is how cards are connected. Missing entries are unknown.
type topology struct {
	numa  map[int]int         // NUMA node by card
	links map[int]map[int]int // number of NVLinks between two cards
}

// Compiled on first use to keep berth's start fast.
var (
	escapes  = text.Pattern("\x1b\\[[0-9;]*m")
	cardName = text.Pattern(`^GPU([0-9]{1,4})$`)
)

// parseTopology reads the matrix of "topo -m": tab-separated, with a header
// that names cards and network adapters, a row for each, and after the matrix
// the CPU and NUMA affinity, sometimes with more tabs than columns.
func parseTopology(out []byte) topology {
	t := topology{numa: map[int]int{}, links: map[int]map[int]int{}}
	var columns []string
	for line := range strings.Lines(escapes().ReplaceAllString(string(out), "")) {
		fields := strings.Split(strings.TrimRight(line, "\r\n"), "\t")
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		if columns == nil {
			columns = matrixColumns(fields)
			continue
		}
		row := cardName().FindStringSubmatch(fields[0])
		if row == nil || len(fields) <= len(columns) {
			continue
		}
		card, _ := strconv.Atoi(row[1])
		t.addRow(card, columns, fields[1:])
	}
	return t
}

// matrixColumns are the names above the matrix; nil if this is not the header.
func matrixColumns(fields []string) []string {
	if len(fields) < 2 || fields[0] != "" || !cardName().MatchString(fields[1]) {
		return nil
	}
	for i, name := range fields[1:] {
		if strings.Contains(name, "Affinity") || strings.Contains(name, "NUMA") || name == "" {
			return fields[1 : 1+i]
		}
	}
	return fields[1:]
}

func (t *topology) addRow(card int, columns, cells []string) {
	for i, name := range columns {
		other := cardName().FindStringSubmatch(name)
		digits, linked := strings.CutPrefix(cells[i], "NV")
		links, err := strconv.Atoi(digits)
		if other == nil || !linked || err != nil || links < 1 {
			continue
		}
		index, _ := strconv.Atoi(other[1])
		if t.links[card] == nil {
			t.links[card] = map[int]int{}
		}
		t.links[card][index] = links
	}
	var behind []string
	for _, cell := range cells[len(columns):] {
		if cell != "" {
			behind = append(behind, cell)
		}
	}
	if len(behind) < 2 {
		return
	}
	if node, err := strconv.Atoi(behind[1]); err == nil && node >= 0 {
		t.numa[card] = node
	}
}

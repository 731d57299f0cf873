package slurm

import (
	"slices"
	"strings"

	"berth/internal/text"
)

// nodeColumns have fixed widths, because no separator works in every release.
var nodeColumns = []struct {
	name  string
	width int
}{{"NodeList", 64}, {"StateLong", 32}, {"CPUsState", 40}, {"Memory", 20}, {"Gres", 256}, {"GresUsed", 256}, {"Features", 512}, {"Reason", 256}}

// NodesCommand is the arguments of sinfo for every node.
func NodesCommand() []string {
	var columns []string
	for _, c := range nodeColumns {
		columns = append(columns, c.name+":"+text.Numbers([]int{c.width}))
	}
	return []string{"--Node", "--noheader", "--Format=" + strings.Join(columns, ",")}
}

// Node is one node of a cluster, as users get it too: a stable contract.
type Node struct {
	Name     string    `json:"name"`
	State    string    `json:"state"`
	Reason   string    `json:"reason"`
	GPUs     []NodeGPU `json:"gpus"`
	CPUs     int       `json:"cpus"`
	FreeCPUs int       `json:"free_cpus"`
	MemMiB   int64     `json:"mem_mib"`
	Features []string  `json:"features"`
	Shards   int       `json:"shards"` // of all its GPUs
}

// NodeGPU is the GPUs of one type in a node.
type NodeGPU struct {
	Type  string `json:"type"` // empty: its gres has no type
	Count int    `json:"count"`
	Used  int    `json:"used"`
}

// Nodes reads what sinfo printed, each node once.
func Nodes(out string) ([]Node, error) {
	var nodes []Node
	for row := range strings.Lines(out) {
		cells := cut(strings.TrimRight(row, "\r\n"))
		if cells == nil || slices.ContainsFunc(nodes, func(n Node) bool { return n.Name == cells[0] }) {
			continue // a node is listed once for each of its partitions
		}
		nodes = append(nodes, node(cells))
	}
	if len(nodes) == 0 && strings.TrimSpace(out) != "" {
		return nil, unexpected("sinfo", out)
	}
	return nodes, nil
}

// cut cuts a row at the fixed widths; nil: it is not a row of the table.
func cut(row string) []string {
	cells := make([]string, len(nodeColumns))
	for i, c := range nodeColumns {
		end := min(c.width, len(row))
		cells[i], row = value(row[:end]), row[end:]
	}
	if cells[0] == "" || strings.Contains(cells[0], " ") || strings.Count(cells[2], "/") != 3 {
		return nil
	}
	return cells
}

func node(cells []string) Node {
	n := Node{Name: cells[0], State: strings.TrimRight(cells[1], "*~#!%$@^-+"), Reason: cells[7], GPUs: []NodeGPU{}, Features: []string{}}
	cpus := strings.Split(cells[2], "/") // allocated/idle/other/total
	n.FreeCPUs, _ = text.Digits(cpus[1], 9)
	n.CPUs, _ = text.Digits(cpus[3], 9)
	mem, _ := text.Digits(strings.TrimRight(cells[3], "+M"), 12)
	n.MemMiB = int64(mem)
	if cells[6] != "" {
		n.Features = strings.Split(cells[6], ",")
	}
	for _, r := range resources(cells[4]) {
		switch r.name {
		case "gpu":
			n.GPUs = append(n.GPUs, NodeGPU{Type: r.kind, Count: r.count})
		case "shard":
			n.Shards += r.count
		}
	}
	for _, r := range resources(cells[5]) {
		for i := range n.GPUs {
			if r.name == "gpu" && n.GPUs[i].Type == r.kind {
				n.GPUs[i].Used = r.count
			}
		}
	}
	return n
}

type resource struct {
	name, kind string
	count      int
}

// resources reads a list of gres, such as "gpu:a100:4(S:0-1),shard:16".
func resources(list string) (all []resource) {
	for _, part := range outside(list) {
		part, _, _ = strings.Cut(part, "(")
		words := strings.Split(part, ":")
		r := resource{name: words[0], count: 1}
		if n, whole := text.Digits(words[len(words)-1], 9); whole {
			r.count, words = n, words[:len(words)-1]
		}
		if len(words) > 1 {
			r.kind = words[1]
		}
		all = append(all, r)
	}
	return all
}

// outside splits a list at the commas that are not in parentheses.
func outside(list string) (parts []string) {
	depth, from := 0, 0
	for i, r := range list {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case r == ',' && depth == 0:
			parts, from = append(parts, list[from:i]), i+1
		}
	}
	if list[from:] != "" {
		parts = append(parts, list[from:])
	}
	return parts
}

package slurm

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"berth/internal/api"
	"berth/internal/compat/frontend"
	"berth/internal/job"
	"berth/internal/machine/site"
)

var sinfo = frontend.Program{Name: "sinfo", Usage: sinfoUsage, Run: runSinfo, OwnH: true}

const sinfoUsage = `usage: sinfo [OPTION...]

Show this machine as Slurm shows a cluster: one partition, berth, with one node.

  -o, --format FORMAT    columns: %P %a %l %D %T %t %N %n %G %C %c %m %E ...
  -O, --Format NAMES     columns by name: NodeHost,Gres,GresUsed,StateLong,...
  -N, --Node             a line for each node
  -l, --long             more columns
  -s, --summarize        nodes allocated, idle, other and in all
  -R, --list-reasons     why GPUs are paused or out of service
  -p, --partition NAMES  only these partitions; the only one is berth
  -n, --nodes NAMES      only these nodes
  -t, --states STATES    only nodes in these states: idle, mix, alloc and so on
  -h, --noheader         no titles
      --json             as JSON, with the keys of Slurm 22.05
      --help             print this

The node is idle, mixed or allocated by its GPUs, and drained if all of them are
paused. berth gpus shows each GPU.

Exit status: 0 shown; 1 failed or bad usage.

Example:
  sinfo -o "%n %G %T"
`

type inventory struct {
	node, long, bare, sum, reasons bool
	json                           bool
	format, columns                string
	partitions, nodes, states      []string
}

func (i *inventory) options() options {
	known := options{
		"Node": on('N', &i.node), "long": on('l', &i.long), "noheader": on('h', &i.bare),
		"format": kept('o', &i.format), "Format": kept('O', &i.columns),
		"json":      on(0, &i.json),
		"summarize": on('s', &i.sum), "list-reasons": on('R', &i.reasons),
		"partition": listed('p', &i.partitions), "nodes": listed('n', &i.nodes),
		"states": listed('t', &i.states),
	}
	return known.ignore(bare, "all:a exact:e responding:r dead:d verbose:v").ignore(valued, "sort:S clusters:M")
}

// machine is what sinfo and scontrol show of the node.
type machine struct {
	host         string
	gpus         []api.GPU
	cpus, memMiB int64
}

func (m *machine) busy() (busy []int) {
	for _, g := range m.gpus {
		if len(g.Jobs) > 0 {
			busy = append(busy, g.Index)
		}
	}
	return busy
}

func (m *machine) state() (long, short string) {
	paused := !slices.ContainsFunc(m.gpus, func(g api.GPU) bool { return !g.Paused && g.Health == "ok" })
	switch busy := len(m.busy()); {
	case len(m.gpus) > 0 && paused && busy > 0:
		return "draining", "drng"
	case len(m.gpus) > 0 && paused:
		return "drained", "drain"
	case busy == 0:
		return "idle", "idle"
	case busy == len(m.gpus):
		return "allocated", "alloc"
	}
	return "mixed", "mix"
}

// gres is gpu:NAME:2, for each kind of GPU.
func (m *machine) gres() string {
	counts, kinds := map[string]int{}, []string{}
	for _, g := range m.gpus {
		kind := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(g.Name, "NVIDIA "), " ", "_"))
		if counts[kind]++; counts[kind] == 1 {
			kinds = append(kinds, kind)
		}
	}
	for i, kind := range kinds {
		kinds[i] = "gpu:" + kind + ":" + strconv.Itoa(counts[kind])
	}
	return cmp.Or(strings.Join(kinds, ","), "(null)")
}

func (m *machine) gresUsed() string {
	busy := m.busy()
	return fmt.Sprintf("gpu:%d(IDX:%s)", len(busy), cmp.Or(spans(busy), "N/A"))
}

// reason says which GPUs take no jobs, or is empty.
func (m *machine) reason() string {
	var paused, broken []int
	for _, g := range m.gpus {
		switch {
		case g.Health != "ok":
			broken = append(broken, g.Index)
		case g.Paused:
			paused = append(paused, g.Index)
		}
	}
	var parts []string
	if len(broken) > 0 {
		parts = append(parts, "GPU "+spans(broken)+" unhealthy")
	}
	if len(paused) > 0 {
		parts = append(parts, "GPU "+spans(paused)+" paused")
	}
	return strings.Join(parts, ", ")
}

func (m *machine) fields() []field {
	value := func(letter byte, names, title, word string) field {
		return field{letter, names, title, func(*asker, *entry) string { return word }}
	}
	long, short := m.state()
	return []field{
		value('P', "partition", "PARTITION", partition+"*"), value('R', "partitionname", "PARTITION", partition), value('a', "available", "AVAIL", "up"),
		value('l', "time", "TIMELIMIT", "infinite"), value('D', "nodes", "NODES", "1"), value('T', "statelong state", "STATE", long), value('t', "statecompact", "STATE", short),
		value('N', "nodelist", "NODELIST", m.host), value('n', "nodehost", "HOSTNAMES", m.host), value('o', "nodeaddr", "NODE_ADDR", m.host),
		value('G', "gres", "GRES", m.gres()), value(0, "gresused", "GRES_USED", m.gresUsed()),
		value('c', "cpus", "CPUS", strconv.FormatInt(m.cpus, 10)), {'C', "cpusstate", "CPUS(A/I/O/T)", func(a *asker, _ *entry) string { return m.cpusState(a) }}, value('m', "memory", "MEMORY", strconv.FormatInt(m.memMiB, 10)),
		value('E', "reason", "REASON", cmp.Or(m.reason(), "none")), value('u', "user", "USER", "Unknown"), value('U', "userlong", "USER", "Unknown"), value('H', "timestamp", "TIMESTAMP", "Unknown"), value('f', "features", "AVAIL_FEATURES", "(null)"), value('b', "features_act", "ACTIVE_FEATURES", "(null)"),
		value('z', "socketcorethread", "S:C:T", "*:*:*"), value('d', "disk", "TMP_DISK", "0"), value('w', "weight", "WEIGHT", "1"), value('F', "nodeaiot", "NODES(A/I/O/T)", aiot(long)),
	}
}

// cpusState counts the CPUs as allocated, idle, other and in all.
func (m *machine) cpusState(a *asker) string {
	allocated := int64(0)
	_, err := a.client.JobsAll(a.ctx, api.Query{Select: api.Select{States: []string{string(job.Running)}}}, func(v job.View) error {
		allocated += max(1, number(a.detail(v.ID).Settings["cpus"]))
		return nil
	})
	idle, other := max(0, m.cpus-allocated), int64(0)
	if long, _ := m.state(); strings.HasPrefix(long, "drain") {
		idle, other = 0, idle
	}
	if err != nil {
		return "n/a"
	}
	return fmt.Sprintf("%d/%d/%d/%d", allocated, idle, other, m.cpus)
}

// aiot counts the node as allocated, idle, other and in all.
func aiot(state string) string {
	switch state {
	case "idle":
		return "0/1/0/1"
	case "mixed", "allocated", "draining":
		return "1/0/0/1"
	}
	return "0/0/1/1"
}

func (a *asker) machine() (*machine, error) {
	gpus, err := api.Call(a.ctx, a.client, api.ListGPUs, api.None{})
	cpus, memMiB := site.Host()
	return &machine{host: a.host, gpus: gpus, cpus: int64(cpus), memMiB: memMiB}, err
}

func runSinfo(c *frontend.Call) int {
	var i inventory
	err := i.options().alone(c.Args)
	usual := "%9P %.5a %.10l %.6D %.6t %N"
	switch {
	case i.reasons && i.long:
		usual = "%20E %12U %19H %6t %N"
	case i.reasons:
		usual = "%20E %9u %19H %N"
	case i.sum:
		usual = "%9P %.5a %.10l %.16F %N"
	case i.node && i.long:
		usual = "%10N %.5D %.9P %.11T %4c %.8z %.6m %.8d %.6w %.8f %20E"
	case i.node:
		usual = "%10N %.5D %.9P %6t"
	case i.long:
		usual = "%9P %.5a %.10l %.6D %.11T %N"
	}
	pick := func(m *machine) (columns, error) {
		if i.columns != "" {
			return namedColumns(i.columns, m.fields())
		}
		return formatColumns(cmp.Or(i.format, usual), m.fields())
	}
	if _, wrong := pick(&machine{}); err == nil {
		err = wrong
	}
	if err != nil {
		return c.Misuse(err.Error(), frontend.Failed)
	}
	return ask(c, func(a *asker) error {
		m, err := a.machine()
		if err != nil {
			return err
		}
		list, err := pick(m)
		if err != nil {
			return err
		}
		long, short := m.state()
		listed := among(i.partitions, partition) && among(i.nodes, m.host) && among(i.states, long, short, "all") && (!i.reasons || m.reason() != "")
		if i.json {
			return a.print("openapi/v0.0.38", "nodes", map[bool][]object{true: {m.described()}}[listed])
		}
		if i.long {
			fmt.Fprintln(c.Out, a.now.Format("Mon Jan 02 15:04:05 2006"))
		}
		if !i.bare {
			fmt.Fprintln(c.Out, list.line(func(f *field) string { return f.title }))
		}
		if listed {
			fmt.Fprintln(c.Out, list.line(func(f *field) string { return f.value(a, nil) }))
		}
		return nil
	})
}

package cli

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"strings"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/machine/modelfiles"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// fromLines reads a jobs file. Flags are defaults for all of its lines.
func (o *submitOptions) fromLines(path string) ([]api.Spec, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, problem.Wrap(problem.Invalid, "", unopened(path, err))
	}
	file, err := jobfile.Parse(path, content, job.Defaults())
	if err == nil {
		err = modelfiles.Resolve(".", path, &file)
	}
	var bad *jobfile.Errors
	switch {
	case errors.As(err, &bad):
		return nil, problem.Wrap(problem.Invalid, "no job was submitted; berth help jobsfile explains the format", err)
	case err != nil:
		return nil, err
	case len(file.Lines) == 0:
		return nil, refuse("write one command per line", "%s has no jobs", path)
	}
	var defaults api.Spec
	if err := o.apply(&defaults); err != nil {
		return nil, err
	}
	specs, lines, err := specsOf(file, defaults)
	if err != nil {
		return nil, err
	}
	o.source, o.lines = path, make([]int, len(lines))
	for i := range lines {
		o.lines[i] = lines[i].Number
	}
	o.batch = &api.Batch{File: session.FileName(path), Lines: lines}
	return specs, nil
}

// specsOf turns the lines of a jobs file into jobs for a request.
func specsOf(file jobfile.File, defaults api.Spec) (specs []api.Spec, lines []api.BatchLine, err error) {
	// Not null: the file may be empty.
	specs, lines = make([]api.Spec, len(file.Lines)), make([]api.BatchLine, len(file.Lines))
	var last, now job.Spec // what the blocks of the last line and of this one say
	for i, line := range file.Lines {
		spec := &specs[i]
		now = line.Spec
		now.Shell, now.Argv, now.Trial = "", nil, job.Trial{}
		inNumbers := !now.VRAMAuto && now.VRAMModel == ""
		if inNumbers {
			now.VRAMMiB = 0
		}
		if i > 0 && reflect.DeepEqual(&last, &now) { // most lines of a long file are alike but for their memory
			*spec = specs[i-1]
			if inNumbers {
				spec.VRAM = defaults.VRAM
			}
			if mib := line.Spec.VRAMMiB; inNumbers && mib > 0 {
				spec.VRAM = api.Text(text.FormatSize(mib))
			}
		} else if *spec, err = blockOf(&line.Spec, defaults); err != nil {
			return nil, nil, err
		}
		last = now
		spec.Command = api.Command{Shell: line.Spec.Shell, Argv: line.Spec.Argv}
		lines[i] = api.BatchLine{Number: line.Number, Params: line.Spec.Trial.Params, Cancel: line.Spec.CancelMarked}
	}
	return specs, lines, nil
}

// blockOf returns the defaults with the settings of a line's block.
func blockOf(from *job.Spec, defaults api.Spec) (spec api.Spec, err error) {
	spec = defaults
	spec.Env = maps.Clone(defaults.Env)
	for _, pair := range jobfile.Pairs(from) {
		if pair.Key == "cancel" {
			continue
		}
		if err := setPair(&spec, pair); err != nil {
			return spec, err
		}
	}
	return spec, nil
}

// batchText sums up what submitting the lines of a file did.
func batchText(file string, reply *api.SubmitReply) string {
	var fresh []string
	had := map[string]int{}
	for _, j := range reply.Jobs {
		switch {
		case j.Again:
			had["to run again"]++
		case j.State == "":
			fresh = append(fresh, j.ID)
		case job.State(j.State).Terminal():
			had[j.State+" earlier"]++
		default:
			had[j.State]++
		}
	}
	var parts []string
	if ids := idRuns(fresh); len(ids) > listedOneByOne {
		parts = append(parts, fmt.Sprintf("%s submitted, %s to %s", text.Grouped(len(fresh)), fresh[0], fresh[len(fresh)-1]))
	} else if len(ids) > 0 {
		parts = append(parts, fmt.Sprintf("%s submitted (%s)", text.Grouped(len(fresh)), strings.Join(ids, ",")))
	}
	for _, what := range []string{"to run again", "running", "parked", "queued", "finished earlier", "failed earlier", "cancelled earlier"} {
		if n := had[what]; n > 0 {
			parts = append(parts, text.Grouped(n)+" "+what)
		}
	}
	if n := len(reply.Withdrawn); n > 0 {
		parts = append(parts, text.Grouped(n)+" withdrawn")
	}
	return fmt.Sprintf("%s in %s: %s", text.CountGrouped(len(reply.Jobs), "job"), file, strings.Join(parts, ", "))
}

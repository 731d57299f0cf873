package mcp

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"berth/internal/api"
	"berth/internal/job/jobfile"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// mostChanged bounds the words that select jobs for one call.
const mostChanged = 100

// addWriting adds the tools that change something.
func (s *server) addWriting() {
	addTool(s, tool{Name: "submit", Title: "Submit a job", Annotations: annotations{Destructive: true},
		Description: "Queue a command. It runs as the user who started this server, with that user's environment, once GPUs have room. The reply has its id. With dry_run nothing is submitted, and the reply says what would happen."}, s.submit)
	for _, a := range []struct {
		action, title, about    string
		destructive, idempotent bool
	}{
		{api.ActCancel, "Cancel jobs", "Cancel jobs, running or not. A running job gets SIGTERM, then SIGKILL after its grace period. What it has not saved is lost.", true, true},
		{api.ActHold, "Hold jobs", "Keep queued jobs from starting until they are released.", false, true},
		{api.ActRelease, "Release jobs", "Let held jobs start when it is their turn.", false, true},
		{api.ActPark, "Park jobs", "Take running jobs off their GPUs without losing work: their GPU memory moves to host memory until they are unparked. show says when it is done, or why the driver refused.", false, true},
		{api.ActUnpark, "Unpark jobs", "Let parked jobs resume where they were, once their GPUs have room.", false, true},
		{api.ActRequeue, "Requeue jobs", "Run jobs again from the beginning, with the same ids. Running jobs are stopped first.", true, false},
	} {
		addTool(s, tool{Name: a.action, Title: a.title, Annotations: annotations{Destructive: a.destructive, Idempotent: a.idempotent}, Description: a.about},
			func(ctx context.Context, in actInput) (*result, error) { return s.act(ctx, a.action, in) })
	}
}

type submitInput struct {
	Command  string          `json:"command" jsonschema:"a shell line, such as: python train.py --epochs 3"`
	Dir      string          `json:"dir,omitempty" jsonschema:"absolute path of the working directory; default: where this server was started"`
	Name     string          `json:"name,omitempty" jsonschema:"a name for people"`
	GPUs     *float64        `json:"gpus,omitempty" jsonschema:"number of GPUs: 0 for none, a fraction below 1 for a share of one; default 1"`
	VRAM     word            `json:"vram,omitempty" jsonschema:"GPU memory that it needs on each GPU, such as 18G; auto: from earlier runs; default: a GPU to itself"`
	Time     word            `json:"time,omitempty" jsonschema:"time limit, such as 90s, 15m, 2h or 1d; default none"`
	Priority int             `json:"priority,omitempty" jsonschema:"higher goes first; default 0"`
	After    word            `json:"after,omitempty" jsonschema:"start after these jobs ended well, such as 17 or 17,18; 17:any after any end"`
	Env      map[string]word `json:"env,omitempty" jsonschema:"variables set for this job"`
	Options  map[string]word `json:"options,omitempty" jsonschema:"other keys of a job, as in a spec file: array, cpus, mem, retries, begin, group, output, venv, conda and more"`
	DryRun   bool            `json:"dry_run,omitempty" jsonschema:"only say what would happen"`
}

// spec is the job that is meant.
func (in *submitInput) spec() (api.Spec, error) {
	spec := api.Spec{Command: api.Command{Shell: in.Command}}
	for key, value := range in.Env {
		if spec.Env == nil {
			spec.Env = map[string]string{}
		}
		spec.Env[key] = string(value)
	}
	if strings.TrimSpace(in.Command) == "" {
		return spec, problem.Newf(problem.Invalid, "", "command: expected a shell line, found nothing")
	}
	if in.Dir != "" && !strings.HasPrefix(in.Dir, "/") {
		return spec, problem.Newf(problem.Invalid, "", "dir: expected an absolute path, found %s", text.Found(in.Dir))
	}
	set := maps.Clone(in.Options)
	if set == nil {
		set = map[string]word{}
	}
	own := map[string]word{"name": word(in.Name), "vram": in.VRAM, "timeout": in.Time, "after": in.After, "dir": word(in.Dir)}
	if in.GPUs != nil {
		own["gpus"] = word(strconv.FormatFloat(*in.GPUs, 'g', -1, 64))
	}
	if in.Priority != 0 {
		own["priority"] = word(strconv.Itoa(in.Priority))
	}
	for key, value := range own {
		if _, twice := set[key]; twice && value != "" {
			return spec, problem.Newf(problem.Invalid, "", "%s is given twice, by itself and in options", key)
		}
		if value != "" {
			set[key] = value
		}
	}
	for _, key := range slices.Sorted(maps.Keys(set)) {
		if !spec.Set(key, string(set[key])) {
			return spec, problem.Newf(problem.Invalid, "berth help jobspec lists the keys of a job", "options: there is no key %s", text.Found(key))
		}
	}
	return spec, nil
}

func (s *server) submit(ctx context.Context, in submitInput) (*result, error) {
	spec, err := in.spec()
	if err != nil {
		return nil, err
	}
	reply, err := s.Submit(ctx, spec, in.DryRun)
	if err != nil {
		return nil, err
	}
	return answer(reply)
}

type actInput struct {
	Jobs []word `json:"jobs" jsonschema:"the jobs: ids (17, 17_0), ranges (1-3), names, or @ for the last one; not all and no patterns"`
}

// namesFew refuses words that may mean more jobs than the agent looked at.
func namesFew(words []string) error {
	few := func(one string) bool {
		if strings.EqualFold(strings.TrimSpace(one), "all") || strings.ContainsAny(one, "*?[") {
			return false
		}
		sel, err := jobfile.ParseSelection([]string{one})
		if err != nil {
			return true // the daemon says it better
		}
		var jobs int64
		for _, r := range sel.Ranges {
			jobs += r.To - r.From + 1
		}
		return jobs <= mostChanged
	}
	for _, one := range words {
		if !few(one) {
			return problem.Newf(problem.Invalid, "list shows the jobs; name those that are meant", "jobs: expected ids or names of at most %d jobs, found %s", mostChanged, text.Found(one))
		}
	}
	return nil
}

// act does one thing to jobs.
func (s *server) act(ctx context.Context, action string, in actInput) (*result, error) {
	words := plain(in.Jobs)
	if len(in.Jobs) == 0 || len(in.Jobs) > mostChanged {
		return nil, problem.Newf(problem.Invalid, "", "jobs: expected 1 to %d, found %d", mostChanged, len(in.Jobs))
	}
	if err := namesFew(words); err != nil {
		return nil, err
	}
	reply, err := api.Call(ctx, s.Client, api.Act, api.ActRequest{Action: action, Select: api.Select{Words: words}})
	if err != nil {
		return nil, err
	}
	fit, left, err := rows(reply.Jobs)
	if err != nil {
		return nil, err
	}
	value := map[string]any{"jobs": fit}
	if left > 0 {
		value["left_out"] = left
	}
	if len(reply.Left) > 0 {
		value["nothing_to_do"] = reply.Left
	}
	result, err := answer(value)
	if err == nil && !slices.ContainsFunc(reply.Jobs, func(j api.Acted) bool { return j.Done }) {
		result.failed = true // nothing was done
	}
	return result, err
}

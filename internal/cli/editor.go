package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// mistakeMark begins the lines that say what was wrong with the last version.
const mistakeMark = "# mistake: "

// inEditor lets the user change a job in an editor, as often as it takes, and
// applies what changed.
func (o *editOptions) inEditor(ctx context.Context, s *session.Session, word string) error {
	d, err := api.Call(ctx, s.Client, api.GetJob, api.JobID{ID: word})
	switch {
	case err != nil:
		return err
	case d.State != job.Queued:
		return problem.Newf(problem.Refused, "only a queued job can be changed; berth requeue also changes one that has ended, and runs it again", "job %s is %s", d.ID, d.State)
	case d.Command == nil:
		return problem.Newf(problem.Forbidden, "", "job %s belongs to %s", d.ID, d.User)
	}
	original := editable(&d)
	before, err := readEdited("job "+d.ID, original)
	if err != nil {
		return fmt.Errorf("write job %s as a spec: %w", d.ID, err)
	}
	file, err := os.CreateTemp("", "berth-job-"+d.ID+"-*.yaml")
	if err != nil {
		return problem.Newf(problem.Unable, "set TMPDIR to another directory", "%w", err)
	}
	path := file.Name()
	file.Close()
	content := original
	for {
		edited, err := openEditor(path, content)
		if err != nil {
			return err
		}
		if bytes.Equal(edited, content) || bytes.Equal(edited, original) {
			return o.unchanged(s, d.ID, path, bytes.Equal(content, original) || bytes.Equal(edited, original))
		}
		change, err := before.changes(path, edited)
		if err == nil && change.None() {
			return o.unchanged(s, d.ID, path, true)
		}
		if err == nil {
			err = o.send(ctx, s, d.ID, change)
		}
		if err == nil {
			return os.Remove(path)
		}
		if now, lost := api.Call(ctx, s.Client, api.GetJob, api.JobID{ID: d.ID}); lost != nil || now.State != job.Queued {
			return kept(path, err)
		}
		content = withMistakes(edited, err)
	}
}

// unchanged ends an edit without a change. A version with mistakes is kept.
func (o *editOptions) unchanged(s *session.Session, id, path string, clean bool) error {
	if !clean {
		return problem.Newf(problem.Invalid, "your version is in "+path, "job %s: the mistakes were not corrected, so nothing changed", id)
	}
	fmt.Fprintf(s.Out, "job %s: nothing changed\n", text.Line(id))
	return os.Remove(path)
}

// kept is an error after which the user's version is still there.
func kept(path string, err error) error {
	hint := "your version is in " + path
	if p, ok := errors.AsType[*problem.Problem](err); ok {
		return &problem.Problem{Kind: p.Kind, What: p.What, Hint: strings.TrimPrefix(p.Hint+"; "+hint, "; "), Err: err}
	}
	return problem.Wrap(problem.Unable, hint, err)
}

// openEditor puts the text into the file, opens it, and returns what became of
// it.
func openEditor(path string, content []byte) ([]byte, error) {
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return nil, problem.Newf(problem.Unable, "", "%w", err)
	}
	editor := cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"), "vi")
	command := exec.Command("/bin/sh", "-c", editor+` "$@"`, editor, path) // it may have arguments
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := command.Start()
	if err == nil {
		// Ctrl-C belongs to the editor as long as it is open.
		signal.Ignore(os.Interrupt)
		err = command.Wait()
		signal.Reset(os.Interrupt)
	}
	if err != nil {
		return nil, problem.Newf(problem.Unable, "VISUAL or EDITOR names the editor; your version is in "+path, "the editor %s failed, so nothing changed: %w", editor, err)
	}
	edited, err := os.ReadFile(path)
	if err != nil {
		return nil, problem.Newf(problem.Unable, "", "%w", err)
	}
	return edited, nil
}

// withMistakes is the user's version with what is wrong with it on top.
func withMistakes(edited []byte, err error) []byte {
	var b bytes.Buffer
	for line := range strings.Lines(err.Error()) {
		b.WriteString(mistakeMark + text.Line(strings.TrimSuffix(line, "\n")) + "\n")
	}
	for line := range bytes.Lines(edited) {
		if !bytes.HasPrefix(line, []byte(mistakeMark)) {
			b.Write(line)
		}
	}
	return b.Bytes()
}

// editable is a job as a spec file: the fields that can be changed, those without
// a value as comments.
func editable(d *api.Detail) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Job %s. Save to apply what you change; without a change nothing happens.\n", text.Line(d.ID))
	b.WriteString("# A line that you remove, or begin with #, gets its default again.\n\n")
	fmt.Fprintf(&b, "command: %s\n", quoted(*d.Command))
	values := valuesOf(d)
	for _, field := range jobfile.Fields() {
		if field.Fixed != "" || field.Where == jobfile.FileOnly || field.Key == "env" {
			continue
		}
		if value, set := values[field.Key]; set {
			fmt.Fprintf(&b, "%s: %s\n", field.Key, quoted(value))
		} else {
			fmt.Fprintf(&b, "# %s:    # %s\n", field.Key, field.Help)
		}
	}
	if len(d.Env) == 0 {
		b.WriteString("# env: {NAME: value}\n")
		return b.Bytes()
	}
	b.WriteString("env:\n")
	for _, name := range slices.Sorted(maps.Keys(d.Env)) {
		fmt.Fprintf(&b, "  %s: %s\n", name, quoted(d.Env[name]))
	}
	return b.Bytes()
}

// plainWord is a value that needs no quotes in YAML: a path, a word or a number
// that a user would not quote either.
var plainWord = text.Pattern(`^([/A-Za-z][A-Za-z0-9/._-]*|0|-?[1-9][0-9]*|[0-9]+\.[0-9]+|[1-9][0-9]*[A-Za-z]+)$`)

// quoted is a value in YAML.
func quoted(value string) string {
	switch strings.ToLower(value) {
	case "true", "false", "yes", "no", "on", "off", "null", "y", "n":
		return strconv.Quote(value)
	}
	if plainWord().MatchString(value) {
		return value
	}
	return strconv.Quote(value)
}

// editedSpec is one version of the file.
type editedSpec struct {
	command api.Command
	pairs   map[string]string // by canonical key
}

func readEdited(name string, content []byte) (editedSpec, error) {
	items, err := jobfile.ParseSpecs(name, content)
	if err != nil {
		return editedSpec{}, err
	}
	if len(items) != 1 {
		return editedSpec{}, fmt.Errorf("expected one job, found %d", len(items))
	}
	if items[0].Axes != nil {
		return editedSpec{}, errors.New("sweep cannot be edited")
	}
	v := editedSpec{command: api.Command{Shell: items[0].Shell, Argv: items[0].Argv}, pairs: map[string]string{}}
	for _, pair := range items[0].Pairs {
		plain, err := jobfile.Plain(pair)
		if err != nil {
			return editedSpec{}, err
		}
		v.pairs[plain.Key] = plain.Value
	}
	return v, nil
}

// changes compares a new version with this one.
func (v editedSpec) changes(path string, content []byte) (change api.EditRequest, err error) {
	now, err := readEdited(path, content)
	if err != nil {
		return change, problem.Wrap(problem.Invalid, "berth help jobspec lists every key with an example", err)
	}
	if now.command.Shell != v.command.Shell || !slices.Equal(now.command.Argv, v.command.Argv) {
		change.Set.Command = now.command
	}
	for _, key := range slices.Sorted(maps.Keys(now.pairs)) {
		if value := now.pairs[key]; value != v.pairs[key] {
			if !change.Set.Set(key, value) {
				return change, problem.Newf(problem.Invalid, "", "%s: this version of berth cannot send it", key)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(v.pairs)) {
		if _, still := now.pairs[key]; !still {
			change.Unset = append(change.Unset, key)
		}
	}
	return change, absolute(&change.Set.Dir, &change.Set.Venv)
}

package job

// Trial is what a job of a sweep has beside its command: a value of each parameter.
type Trial struct {
	Sweep    string    `json:"sweep,omitempty"` // how its user named it, with placeholders
	Params   []Param   `json:"params,omitempty"`
	Metrics  []string  `json:"metrics,omitempty"` // how they are picked from its log
	Template *Template `json:"template,omitempty"`
	// Late: it was added to the sweep, so its number does not follow the array's.
	Late bool `json:"late,omitempty"`
}

// Whole is the spec of the sweep that a trial is of, with the placeholders in its
// words. The spec of another job stays as it is.
func (s Spec) Whole() Spec {
	if t := s.Trial.Template; t != nil {
		s.Shell, s.Argv, s.Name, s.Dir, s.Output, s.Env = t.Shell, t.Argv, t.Name, t.Dir, t.Output, t.Env
		s.Trial.Params = nil
	}
	return s
}

// Values are its parameters by name; nil: it is no trial.
func (t *Trial) Values() map[string]string {
	if len(t.Params) == 0 {
		return nil
	}
	values := make(map[string]string, len(t.Params))
	for _, p := range t.Params {
		values[p.Name] = p.Value
	}
	return values
}

// Param is a parameter of a sweep, and its value in one trial.
type Param struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Template is the text that the trials of a sweep are made from. A placeholder such
// as {lr} stands for the value of a parameter.
type Template struct {
	Shell  string   `json:"shell,omitempty"`
	Argv   []string `json:"argv,omitempty"`
	Name   string   `json:"name,omitempty"`
	Base   string   `json:"base,omitempty"` // the directory that Dir is relative to
	Dir    string   `json:"dir,omitempty"`
	Output string   `json:"output,omitempty"`
	Env    []EnvVar `json:"env,omitempty"`
}

// Texts visits every string of a template.
func (t *Template) Texts(visit func(*string)) {
	for _, text := range []*string{&t.Shell, &t.Name, &t.Base, &t.Dir, &t.Output} {
		visit(text)
	}
	for i := range t.Argv {
		visit(&t.Argv[i])
	}
	for i := range t.Env {
		visit(&t.Env[i].Key)
		visit(&t.Env[i].Value)
	}
}

// Clone is a deep copy.
func (t *Template) Clone() *Template {
	c := *t
	c.Argv, c.Env = append([]string(nil), t.Argv...), append([]EnvVar(nil), t.Env...)
	return &c
}

// Texts visits every string of a trial.
func (t *Trial) Texts(visit func(*string)) {
	visit(&t.Sweep)
	for i := range t.Params {
		visit(&t.Params[i].Name)
		visit(&t.Params[i].Value)
	}
	for i := range t.Metrics {
		visit(&t.Metrics[i])
	}
	if t.Template != nil {
		t.Template.Texts(visit)
	}
}

// isNone reports whether it is the zero Trial.
func (t *Trial) isNone() bool {
	return t.Sweep == "" && t.Params == nil && t.Metrics == nil && t.Template == nil && !t.Late
}

// TextBytes is the size of all of them.
func (t *Trial) TextBytes() (bytes int) {
	t.Texts(func(text *string) { bytes += len(*text) })
	return bytes
}

// Clone is a deep copy.
func (t Trial) Clone() Trial {
	t.Params, t.Metrics = append([]Param(nil), t.Params...), append([]string(nil), t.Metrics...)
	if t.Template != nil {
		t.Template = t.Template.Clone()
	}
	return t
}

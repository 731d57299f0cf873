package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"golang.org/x/sys/unix"

	"berth/internal/job/jobfile"
	"berth/internal/machine/site"
	"berth/internal/sched"
	"berth/internal/text"
)

// MaxBytes bounds a config file. It leaves room for ten thousand users
// with limits of their own.
const MaxBytes = 1 << 20

// Load reads a config file. A missing file means the defaults, unless
// mustExist. A shared daemon, which runs as root, accepts only a file that
// nobody but root can change.
func Load(path string, shared, mustExist bool) (Config, error) {
	trusted := func(string) error { return nil }
	if shared {
		trusted = site.TrustedFile
	}
	return load(path, shared, mustExist, trusted)
}

func load(path string, shared, mustExist bool, trusted func(path string) error) (Config, error) {
	err := trusted(path)
	var data []byte
	if err == nil {
		data, err = read(path)
	}
	if errors.Is(err, fs.ErrNotExist) && !mustExist {
		return Default(shared), nil
	}
	if err != nil {
		return Config{}, fmt.Errorf("read config: %w", err)
	}
	return Parse(path, data, Default(shared))
}

func read(path string) ([]byte, error) {
	// If the path is a pipe, opening it must not block the daemon.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(file, MaxBytes+1))
	if err == nil && len(data) > MaxBytes {
		err = fmt.Errorf("%s is larger than %d bytes", path, MaxBytes)
	}
	return data, err
}

// tomlTable is a table whose values have not been decoded.
type tomlTable = map[string]toml.Primitive

// parser is a file being read. It continues after a mistake, so that all of
// them are reported at once.
type parser struct {
	path  string
	meta  toml.MetaData
	keys  tomlTable // the values read, by section.key
	found []jobfile.Problem
	more  int // problems beyond those found
}

func Parse(path string, data []byte, c Config) (Config, error) {
	f := &parser{path: path, keys: tomlTable{}}
	var tables tomlTable
	var err error
	if f.meta, err = toml.Decode(string(data), &tables); err != nil {
		var syntax toml.ParseError
		if errors.As(err, &syntax) {
			return Config{}, &jobfile.Errors{Problems: []jobfile.Problem{{File: path, Line: syntax.Position.Line, Text: syntax.Message}}}
		}
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	f.tables(&c, tables)
	f.settlePolicy(&c)
	if key, err := c.conflict(); err != nil && !f.doubts(key) {
		f.problem(f.keys[key], "%s: %v", key, err)
	}
	if len(f.found) > 0 {
		return Config{}, f.errors()
	}
	return c, nil
}

// settlePolicy expands policy = "fair", which sets two things at once, in
// whatever order the keys were written.
func (f *parser) settlePolicy(c *Config) {
	if c.Rules.Policy != PolicyFair {
		return
	}
	if value, said := f.keys["scheduling.fair_share"]; said && !c.Rules.Fair {
		f.problem(value, "scheduling.fair_share: expected true with policy = %q, found false", PolicyFair)
	}
	c.Rules.Policy, c.Rules.Fair = sched.Backfill, true
}

// doubts reports a problem already found in the section of a key: then its
// values cannot be judged together.
func (f *parser) doubts(key string) bool {
	section, _, _ := strings.Cut(key, ".")
	return slices.ContainsFunc(f.found, func(p jobfile.Problem) bool { return strings.HasPrefix(p.Text, section+".") })
}

// tables reads the sections: the limits of all users before those of single
// users.
func (f *parser) tables(c *Config, tables tomlTable) {
	var users tomlTable
	for name, value := range tables {
		if slices.Contains(wordsOf(keysOf("")), name) {
			f.set(c, "", keysOf(""), name, value)
			continue
		}
		if !slices.Contains(sections(), name) {
			f.unknownTable(name, value)
			continue
		}
		keys, ok := f.asTable(name, value)
		if !ok {
			continue
		}
		for key, value := range keys {
			if name+"."+key != usersTable {
				f.set(c, name, keysOf(name), key, value)
			} else if found, ok := f.asTable(usersTable, value); ok {
				users = found
			}
		}
	}
	for user, value := range users {
		f.user(c, user, value)
	}
}

// set stores a value under its key.
func (f *parser) set(c *Config, section string, known []knownKey, key string, value toml.Primitive) {
	name := dotted(section, key)
	i := slices.IndexFunc(known, func(k knownKey) bool { return k.key == key })
	if i < 0 {
		f.problem(value, "%s: unknown key; %s", name, meant(key, wordsOf(known), false))
		return
	}
	f.keys[name] = value
	if err := known[i].set(c, f.value(value)); err != nil {
		f.problem(value, "%s: %v", name, err)
	}
}

// user reads the limits of one user. Only a limit that is present becomes the
// user's own, because messages say whose limit applies.
func (f *parser) user(c *Config, user string, value toml.Primitive) {
	section := usersTable + "." + user
	keys, ok := f.asTable(section, value)
	if !ok {
		return
	}
	if !isName(user) {
		f.problem(value, "%s: expected a user name, found %s", usersTable, shown(user))
		return
	}
	own := *c
	for key, value := range keys {
		f.set(&own, section, userKeys, key, value)
	}
	for key := range keys {
		if key == "queued_jobs" {
			putIn(&c.QueuedJobsOf, user, own.QueuedJobs)
		} else {
			putIn(&c.Limits.Users, user, own.Limits.Default)
		}
	}
}

// asTable decodes a section.
func (f *parser) asTable(name string, value toml.Primitive) (tomlTable, bool) {
	if _, ok := f.value(value).(map[string]any); !ok {
		f.problem(value, "%s: expected a section [%s], found %s", name, name, shown(f.value(value)))
		return nil, false
	}
	var keys tomlTable
	if err := f.meta.PrimitiveDecode(value, &keys); err != nil {
		panic("bug: a table that cannot be opened: " + err.Error())
	}
	return keys, true
}

// value is a value of the file, in the parser's own types.
func (f *parser) value(p toml.Primitive) any {
	var v any
	if err := f.meta.PrimitiveDecode(p, &v); err != nil {
		panic("bug: a value that cannot be read: " + err.Error())
	}
	return v
}

// unreadable rejects every value: the parser reports a value's line only when
// decoding it fails.
type unreadable struct{}

// UnmarshalTOML never succeeds.
func (*unreadable) UnmarshalTOML(any) error { return errors.New("not to be read") }

// line is the line of a value.
func (f *parser) line(p toml.Primitive) int {
	var where toml.ParseError
	if err := f.meta.PrimitiveDecode(p, &unreadable{}); errors.As(err, &where) {
		return where.Position.Line
	}
	return 0
}

func (f *parser) unknownTable(name string, value toml.Primitive) {
	if _, isTable := f.value(value).(map[string]any); isTable {
		near := text.Nearest(name, sections())
		if near == "" {
			near = strings.Join(sections(), "] or [")
		}
		f.problem(value, "unknown section [%s]; did you mean [%s]?", name, near)
		return
	}
	f.problem(value, "%s is outside any section; %s", name, meant(name, wordsOf(knownKeys), true))
}

// meant suggests what a misplaced or misspelt key was meant to be: the same key
// in another section, a similar key, or any known key.
func meant(key string, known []string, outside bool) string {
	near := key
	if len(sectionsWith(key)) == 0 {
		near = text.Nearest(key, known)
	}
	switch {
	case near == "" && outside:
		return "the sections are " + strings.Join(sections(), ", ")
	case near == "":
		return "the keys are " + strings.Join(known, ", ")
	case slices.Contains(sectionsWith(near), ""):
		return fmt.Sprintf("did you mean %s, above the first section?", near)
	case near == key || outside:
		return fmt.Sprintf("did you mean %s in [%s]?", near, strings.Join(sectionsWith(near), "] or ["))
	}
	return fmt.Sprintf("did you mean %s?", near)
}

// problem records a mistake. Finding its line takes a scan of the whole file, so
// the number of problems is bounded.
func (f *parser) problem(value toml.Primitive, format string, args ...any) {
	const most = 100
	if len(f.found) == most {
		f.more++
		return
	}
	f.found = append(f.found, jobfile.Problem{File: f.path, Line: f.line(value), Text: fmt.Sprintf(format, args...)})
}

// errors lists the problems from the top of the file down, up to a bound: a
// person fixes the first few and tries again.
func (f *parser) errors() error {
	const most = 20
	slices.SortFunc(f.found, func(a, b jobfile.Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Text, b.Text))
	})
	told := f.found[:min(len(f.found), most)]
	return &jobfile.Errors{Problems: told, More: len(f.found) - len(told) + f.more}
}

package slurm

import (
	"errors"
	"slices"
	"strings"

	"berth/internal/text"
	"berth/internal/text/problem"
)

// mostText bounds the text of options; no sane one comes near it.
const mostText = 4096

// Words checks the text of --slurm, such as "--account=lab -q long", and returns
// its options as --name=value, each one word. Options that berth sets itself are
// refused, with the flag to use instead.
func Words(line string) ([]string, error) {
	if len(line) > mostText {
		return nil, invalid("expected at most %d bytes, found %d", mostText, len(line))
	}
	words, err := Split(line)
	if err != nil {
		return nil, invalid("%v", err)
	}
	var options []string
	for len(words) > 0 {
		option, taken, err := read(words)
		if err != nil {
			return nil, err
		}
		options, words = append(options, option...), words[taken:]
	}
	return options, nil
}

func invalid(format string, args ...any) error {
	return problem.Newf(problem.Invalid, `write it as for sbatch: --slurm "--account=lab --qos=long"`, "--slurm: "+format, args...)
}

// read takes the option at the beginning of the words: itself, and its value if
// that is the next word.
func read(words []string) (options []string, taken int, err error) {
	switch first := words[0]; {
	case strings.HasPrefix(first, "--") && len(first) > 2:
		return readLong(words)
	case strings.HasPrefix(first, "-") && first != "--" && len(first) > 1:
		return readShort(words)
	default:
		// sbatch would take it for the script.
		return nil, 0, invalid("expected an option, found %s", text.Found(first))
	}
}

func readLong(words []string) (options []string, taken int, err error) {
	name, value, attached := strings.Cut(words[0][2:], "=")
	o, known := known[name]
	if !known {
		if full := abbreviated(name); full != "" {
			return nil, 0, invalid("expected the full name of an option, such as --%s, found --%s", full, name)
		}
		if !word(name) {
			return nil, 0, invalid("expected an option, found %s", text.Found(words[0]))
		}
		if !attached || value == "" {
			// An option that needs a value would take the next option for it.
			return nil, 0, invalid("berth does not know --%s: expected --%s=VALUE", name, name)
		}
		return []string{words[0]}, 1, nil
	}
	taken = 1
	switch {
	case o.takes == needed && !attached && len(words) < 2:
		return nil, 0, invalid("--%s: expected a value, found none", name)
	case o.takes == needed && !attached:
		value, attached, taken = words[1], true, 2
	case o.takes == no && attached:
		return nil, 0, invalid("--%s: expected no value, found %s", name, text.Found(value))
	}
	option, err := accept(name, value, attached)
	return []string{option}, taken, err
}

// readShort takes letters that may be joined, as in -Hq long.
func readShort(words []string) (options []string, taken int, err error) {
	letters := words[0][1:]
	for len(letters) > 0 {
		name := long(letters[0])
		if name == "" {
			return nil, 0, invalid("expected an option of sbatch, found -%s", letters[:1])
		}
		rest := letters[1:]
		if known[name].takes != needed {
			option, err := accept(name, "", false)
			if err != nil {
				return nil, 0, err
			}
			options, letters = append(options, option), rest
			continue
		}
		if rest == "" && len(words) < 2 {
			return nil, 0, invalid("-%c: expected a value, found none", letters[0])
		}
		taken = 1
		if rest == "" {
			rest, taken = words[1], 2
		}
		option, err := accept(name, strings.TrimPrefix(rest, "="), true)
		return append(options, option), taken, err
	}
	return options, 1, nil
}

// accept checks one known option.
func accept(name, value string, attached bool) (string, error) {
	if o := known[name]; o.instead != "" && !(o.one && value == "1") {
		return "", problem.Newf(problem.Refused, o.instead, "--slurm: berth sets --%s itself", name)
	}
	if name == "gres" {
		for part := range strings.SplitSeq(value, ",") {
			resource, _, _ := strings.Cut(part, ":")
			if slices.Contains([]string{"gpu", "shard", "mps", "none"}, strings.TrimPrefix(resource, "gres/")) {
				return "", problem.Newf(problem.Refused, "use --gpus, with --gpu-type for the model", "--slurm: berth sets --gres=%s itself", resource)
			}
		}
	}
	if !attached {
		return "--" + name, nil
	}
	if value == "" {
		return "", invalid("--%s: expected a value, found none", name)
	}
	return "--" + name + "=" + value, nil
}

// abbreviated is the option that sbatch would take an unknown name for: it accepts
// the beginning of a name.
func abbreviated(name string) string {
	var found []string
	for full := range known {
		if strings.HasPrefix(full, name) {
			found = append(found, full)
		}
	}
	if len(found) == 0 {
		return ""
	}
	return slices.Min(found)
}

// word reports whether a text is a plain name: it cannot become an option or a
// list.
func word(s string) bool {
	if s == "" || len(s) > 128 || strings.HasPrefix(s, "-") {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_.+-", r))
	}) < 0
}

// Split cuts a line into words as a shell would, without expanding anything.
func Split(line string) (words []string, err error) {
	if i := strings.IndexFunc(line, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }); i >= 0 {
		return nil, errors.New("expected options on one line, found a control character")
	}
	return text.ShellWords(line, false)
}

package keep

import (
	"path/filepath"
	"slices"
	"strings"
)

// command is the program of an order with its arguments: the words of the order, or
// what its shell would execute anyway.
func (o Order) command() (path string, argv []string, err error) {
	if words := o.plainWords(); words != nil {
		path, err := lookPath(words[0], o.Dir, o.Env)
		file := path
		if !filepath.IsAbs(path) {
			file = filepath.Join(o.Dir, path)
		}
		if err == nil && (path != words[0] || executable(file)) {
			return path, words, nil
		}
		// The shell says what is wrong.
	}
	path, err = lookPath(o.Argv[0], o.Dir, o.Env)
	return path, o.Argv, err
}

// plainWords are those of a line that a shell would only split, look up and
// execute, or nil. Without the shell, a short job takes half the time. It is what
// make does with such lines, with the same idea of them.
func (o Order) plainWords() []string {
	if len(o.Argv) != 3 || o.Argv[0] != "/bin/sh" || o.Argv[1] != "-c" || strings.IndexFunc(o.Argv[2], notPlain) >= 0 {
		return nil
	}
	words := strings.Split(o.Argv[2], " ")
	words = slices.DeleteFunc(words, func(word string) bool { return word == "" })
	if len(words) == 0 || strings.Contains(words[0], "=") || slices.Contains(shellWords, words[0]) {
		return nil
	}
	// The shell would correct PWD, and may have functions from the environment.
	here := false
	for _, entry := range o.Env {
		here = here || entry == "PWD="+o.Dir
		if strings.HasPrefix(entry, "BASH_FUNC_") {
			return nil
		}
	}
	if !here {
		return nil
	}
	return words
}

// notPlain reports a character that may mean something to a shell.
func notPlain(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(" _-./,:=@%+", r)
}

// shellWords are the keywords and the builtins of shells whose programs differ from
// them, or do not exist.
var shellWords = strings.Fields(`. : alias autoload bg bind break builtin caller case cd chdir command compgen complete
	compopt continue coproc declare dirs disown do done echo elif else enable esac eval exec exit export fc fg fi
	float for foreach function getopts hash help history if in integer jobs kill let local logout mapfile nameref
	nocorrect noglob popd print printf pushd pwd read readarray readonly repeat return select set shift shopt source
	suspend test then time times trap type typeset ulimit umask unalias unfunction unset until wait whence while`)

package jobfile

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"berth/internal/text"
)

// Kind is what a file that a user names seems to be.
type Kind string

// The kinds. A shell would run text of any of them, line by line, so each verb
// takes only those that make sense to it.
const (
	AnyText  Kind = "text"     // text without any sign: a shell script or a jobs file
	Shell    Kind = "script"   // a script: a #! line, directives, or a name such as train.sh
	JobLines Kind = "lines"    // a jobs file: a block, or a name such as jobs.txt
	SpecFile Kind = "specs"    // YAML or JSON
	Source   Kind = "source"   // in a language that the shell does not read
	Document Kind = "document" // text for people, or settings
	Program  Kind = "program"  // that the kernel executes
	Binary   Kind = "binary"   // any other bytes
	Empty    Kind = "empty"
)

// Guess is the kind of a file, from its name and how it begins.
type Guess struct {
	Kind Kind
	// Interpreter are the words that run a Source; nil: it has to be compiled.
	Interpreter []string
	// First is the first word of AnyText: the command, if it is a script.
	First string
}

// GuessKind looks at a file's name and its beginning. What the file says about
// itself counts more than its name.
func GuessKind(name string, head []byte) Guess {
	head = bytes.TrimPrefix(head, []byte("\xef\xbb\xbf"))
	extension := strings.ToLower(path.Ext(name))
	interpreter, isSource := sources[extension]
	switch {
	case len(bytes.TrimSpace(head)) == 0:
		return Guess{Kind: Empty}
	case bytes.HasPrefix(head, []byte("\x7fELF")):
		return Guess{Kind: Program}
	case bytes.IndexByte(head, 0) >= 0:
		return Guess{Kind: Binary}
	case bytes.HasPrefix(head, []byte("#!")):
		if line, _, _ := bytes.Cut(head, []byte{'\n'}); bytes.Contains(line, []byte("berth run")) {
			return Guess{Kind: JobLines} // a jobs file that runs itself
		}
		return Guess{Kind: Shell}
	case isSource:
		return Guess{Kind: Source, Interpreter: interpreter}
	case slices.Contains([]string{".yaml", ".yml", ".json", ".jsonl", ".ndjson"}, extension):
		return Guess{Kind: SpecFile}
	}
	first, directives := firstLine(head)
	switch {
	case directives:
		return Guess{Kind: Shell}
	case slices.Contains([]string{".md", ".rst", ".html", ".xml", ".log", ".out", ".err", ".tsv", ".toml", ".ini", ".cfg", ".conf"}, extension):
		return Guess{Kind: Document}
	case looksLikeSpecs(first):
		return Guess{Kind: SpecFile}
	case OpensBlock(first):
		return Guess{Kind: JobLines}
	case slices.Contains([]string{".txt", ".csv", ".jobs"}, extension):
		return Guess{Kind: JobLines}
	case slices.Contains([]string{".sh", ".bash", ".ksh", ".sbatch", ".slurm"}, extension):
		return Guess{Kind: Shell}
	}
	word, _, _ := strings.Cut(first, " ")
	return Guess{Kind: AnyText, First: word}
}

// sources are the languages by extension, and what runs them.
var sources = map[string][]string{
	".py": {"python"}, ".pyw": {"python"}, ".r": {"Rscript"}, ".jl": {"julia"}, ".pl": {"perl"}, ".rb": {"ruby"}, ".lua": {"lua"},
	".js": {"node"}, ".mjs": {"node"}, ".zsh": {"zsh"}, ".fish": {"fish"}, ".ipynb": {"jupyter", "nbconvert", "--to", "notebook", "--execute"},
	".c": nil, ".cc": nil, ".cpp": nil, ".cu": nil, ".go": nil, ".rs": nil, ".java": nil,
}

// firstLine is the first line that is neither blank nor a comment, and whether
// directives precede it.
func firstLine(head []byte) (first string, directives bool) {
	for line := range bytes.Lines(head) {
		line = trim(bytes.TrimSuffix(line, []byte{'\n'}))
		switch _, _, marked := cutMark(line); {
		case marked:
			directives = true
		case len(line) > 0 && line[0] != '#':
			return string(line), directives
		}
	}
	return "", directives
}

// specStart is how a spec file begins in YAML or JSON: a list, a document, or a
// key.
var specStart = text.Pattern(`^(\{|\[\s*(\{|$)|---\s*$|-\s|"?([A-Za-z_.-]+)"?\s*:(\s|$))`)

func looksLikeSpecs(first string) bool {
	found := specStart().FindStringSubmatch(first)
	if found == nil || found[3] == "" {
		return found != nil
	}
	_, err := Lookup(found[3])
	return err == nil || found[3] == commandKey
}

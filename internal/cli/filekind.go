package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"

	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// refuse is a problem with a file, and the command that was probably meant.
func refuse(hint, format string, args ...any) error {
	return problem.Newf(problem.Invalid, hint, format, args...)
}

// notAScript refuses what submit was given instead of a script. Nil: it can run.
func notAScript(args []string, head []byte, mode fs.FileMode) error {
	name := args[0]
	guess := jobfile.GuessKind(name, head)
	switch guess.Kind {
	case jobfile.Empty:
		return refuse("write the commands into it, or put a command after --", "%s is empty", name)
	case jobfile.Program:
		if mode&0o111 == 0 {
			return refuse("chmod +x "+job.Quote(name), "%s is a program, but not executable", name)
		}
	case jobfile.Binary:
		return refuse("to run a command on it, put the command after --", "expected a script or a program, found neither in %s", name)
	case jobfile.Source:
		return refuse(meantFor(guess, args), "%s has no #! line, so a shell would run it", name)
	case jobfile.Document:
		return refuse(scriptBegins, "expected a script, found %s without a #! line", name)
	case jobfile.AnyText:
		if mode&0o111 == 0 && !isCommand(guess.First) {
			return refuse(scriptBegins, "expected a script, found %s, which begins with %s: there is no such command", name, text.Found(guess.First))
		}
	}
	return nil
}

const scriptBegins = "a script without a name like train.sh begins with #!/bin/sh"

// isCommand reports whether a script may begin with a word: a program, or
// anything that the shell reads by itself. Only what certainly is neither counts
// as text.
func isCommand(word string) bool {
	switch word {
	case "", ":", ".", "alias", "break", "case", "cd", "command", "continue", "declare", "do", "done", "elif", "else", "esac", "eval", "exec", "exit", "export", "fi", "for", "function", "if", "local", "module",
		"read", "readonly", "return", "set", "shift", "shopt", "source", "then", "time", "trap", "type", "typeset", "ulimit", "umask", "unalias", "unset", "until", "wait", "while", "conda", "mamba":
		return true
	}
	if strings.ContainsAny(word, "=$(){}[]'\"`;&|<>!\\~") || strings.Contains(word, "/") && !strings.Contains(word, ":") {
		return true // syntax, or a program that the job's directory may have
	}
	_, err := exec.LookPath(word)
	return err == nil
}

// notAJobsFile refuses what run was given instead of a jobs file. A pipe, and a
// file that cannot be read, are left to run.
func notAJobsFile(path string) error {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return nil // a pipe can be read only once
	}
	head, mode, err := readScript(path)
	if err != nil {
		return nil
	}
	name := job.Quote(path)
	switch guess := jobfile.GuessKind(path, head); guess.Kind {
	case jobfile.Shell:
		return refuse(fmt.Sprintf("berth submit %s runs it as one job; berth run --format lines %[1]s runs each of its lines as a job", name), "expected a jobs file, found the script %s", path)
	case jobfile.SpecFile:
		return refuse("berth submit -f "+name, "expected a jobs file, found the spec file %s", path)
	case jobfile.Source:
		return refuse(meantFor(guess, []string{path}), "expected a jobs file, found the program %s", path)
	case jobfile.Program:
		hint := "berth submit " + name
		if mode&0o111 == 0 {
			hint = "chmod +x " + name + ", then " + hint
		}
		return refuse(hint, "expected a jobs file, found the program %s", path)
	case jobfile.Binary:
		return refuse("a jobs file has one shell command per line", "expected a jobs file, found other bytes than text in %s", path)
	}
	return nil
}

// meantFor returns the command that submits a file which needs an interpreter.
func meantFor(guess jobfile.Guess, args []string) string {
	if guess.Interpreter == nil {
		return "compile it, and submit the program"
	}
	words := slices.Concat(guess.Interpreter, args)
	if words[0] == "python" {
		words[0] = python()
	}
	return "berth submit -- " + job.QuoteArgv(words)
}

// python is the name of the interpreter on this machine.
func python() string {
	if _, err := exec.LookPath("python"); errors.Is(err, exec.ErrNotFound) {
		if _, err := exec.LookPath("python3"); err == nil {
			return "python3"
		}
	}
	return "python"
}

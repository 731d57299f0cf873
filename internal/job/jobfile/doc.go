// Package jobfile parses what users write: jobs files, spec files in YAML and
// JSON, the directives of scripts, the keys of a submission, and the begin
// times, id lists and dependencies that appear in all of them. One table
// (fields.go) has every field of a job for all of these grammars: its names,
// its meaning and syntax, its help, and which users may change it. Every error
// says what was expected and what was found.
//
// It is pure: text in, values out. It may not open a file, read a clock or the
// environment, start a process, or log. It imports the standard library,
// packages job, notify and text and a YAML reader only.
package jobfile

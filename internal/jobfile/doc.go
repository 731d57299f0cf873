// Package jobfile reads what people write: jobs files, spec files in YAML and
// JSON, the directives of scripts, the keys of a submission, and the begin
// times, id lists and dependencies that appear in all of them. One table
// (fields.go) has every field of a job: its names, what it means and how it is
// written, whichever grammar it stood in, its help, and who may change it.
// Every mistake is answered with what was found and what is allowed.
//
// It is pure: text in, values out. It may not open a file, look at a clock or
// the environment, start anything, or log. It imports the standard library,
// packages job and text and a YAML reader only.
package jobfile

// Package jobfile reads what people write: jobs files, and the sizes,
// durations, id lists and dependencies that appear in them and in flags.
// Every mistake is answered with what was found and what is allowed.
//
// It is pure: text in, values out. It may not open a file, look at a clock or
// the environment, start anything, or log. It imports the standard library
// and package job only.
package jobfile

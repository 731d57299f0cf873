package job

import (
	"slices"
	"strings"
)

// LookupEnv is os.LookupEnv of a list of NAME=VALUE; the last definition counts.
func LookupEnv(environ []string, name string) (value string, set bool) {
	for _, pair := range slices.Backward(environ) {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// Getenv is os.Getenv of such a list.
func Getenv(environ []string, name string) string {
	value, _ := LookupEnv(environ, name)
	return value
}

// Exported is the part of a captured environment that the job asked for.
func (s *Spec) Exported(captured []string) []string {
	if s.Export == "none" {
		return nil
	}
	wanted := strings.Split(s.Export, ",")
	return slices.DeleteFunc(slices.Clone(captured), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return s.Export != "" && s.Export != "all" && !slices.Contains(wanted, name)
	})
}

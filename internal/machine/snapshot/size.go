package snapshot

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"berth/internal/text"
	"berth/internal/text/problem"
)

const (
	// DefaultLimit is the largest snapshot, in bytes: code is smaller, and data
	// does not belong in it.
	DefaultLimit = 1 << 30
	maxFiles     = 100_000
)

// SizeVariable is the environment variable that sets another limit.
const SizeVariable = "BERTH_SNAPSHOT_SIZE"

// check refuses a tree that is too large, and names what makes it so.
func (l *listing) check(limit int64) error {
	switch {
	case l.files == 0:
		return problem.Newf(problem.Invalid, "git ls-files and "+ignoreFile+" say what is part of it", "snapshot: %s has no files that are not ignored", l.root)
	case l.bytes <= limit && l.files <= maxFiles:
		return nil
	}
	hint := fmt.Sprintf("list what jobs do not need in %s (syntax of .gitignore)", filepath.Join(l.root, ignoreFile))
	if l.bytes > limit {
		hint += fmt.Sprintf(", name a smaller directory with --snapshot=DIR, or raise %s", SizeVariable)
	} else {
		hint += ", or name a smaller directory with --snapshot=DIR"
	}
	return problem.Newf(problem.TooMuch, hint, "snapshot: %s has %s and %s; at most %s and %s are copied. The largest parts: %s",
		l.root, sizeText(l.bytes), text.CountGrouped(l.files, "file"), sizeText(limit), text.CountGrouped(maxFiles, "file"), strings.Join(l.largest(), ", "))
}

// largest are the parts of a tree that take the most room, or have the most files
// if those are the problem, largest first.
func (l *listing) largest() []string {
	type part struct {
		bytes int64
		files int
	}
	byName := map[string]*part{}
	for _, e := range l.entries {
		if e.mode.IsDir() {
			continue
		}
		// Two levels tell enough: data/imagenet, runs/2024.
		name := e.name
		if words := strings.SplitN(name, "/", 3); len(words) == 3 {
			name = words[0] + "/" + words[1] + "/"
		} else if len(words) == 2 {
			name = words[0] + "/"
		}
		p := byName[name]
		if p == nil {
			p = &part{}
			byName[name] = p
		}
		p.bytes += e.bytes
		p.files++
	}
	names := slices.SortedFunc(maps.Keys(byName), func(a, b string) int {
		x, y := byName[a], byName[b]
		if l.files > maxFiles {
			return cmp.Or(cmp.Compare(y.files, x.files), cmp.Compare(a, b))
		}
		return cmp.Or(cmp.Compare(y.bytes, x.bytes), cmp.Compare(a, b))
	})
	const told = 3
	list := names[:min(len(names), told)]
	for i, name := range list {
		list[i] = fmt.Sprintf("%s (%s, %s)", name, sizeText(byName[name].bytes), text.CountGrouped(byName[name].files, "file"))
	}
	return list
}

func sizeText(bytes int64) string {
	switch {
	case bytes >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
	case bytes >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	}
	return fmt.Sprintf("%d bytes", bytes)
}

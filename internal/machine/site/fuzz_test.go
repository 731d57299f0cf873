package site

import (
	"strings"
	"testing"
)

// What comes from name services and files of the system never makes a user or
// a limit that cannot be.
func FuzzPasswd(f *testing.F) {
	for _, seed := range []string{ann, "root:x:0:0:root:/root:/bin/sh", "a:b", "x:x:-1:4294967295:::", "lab:x:44:a,b, c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if user, err := parsePasswd(line); err == nil {
			if user.Name == "" || user.UID < 0 || user.UID > maxID || user.GID < 0 || user.GID > maxID || user.Home == "" || user.Shell == "" {
				t.Errorf("%+v", user)
			}
		}
		if g, err := parseGroup(line); err == nil && (g.name == "" || g.gid < 0 || g.gid > maxID) {
			t.Errorf("%+v", g)
		}
		if gids, err := parseGroups(line); err == nil {
			for _, gid := range gids {
				if gid < 0 || gid > maxID {
					t.Error(gid)
				}
			}
		}
	})
}

func FuzzLimits(f *testing.F) {
	for _, seed := range []string{"ann - nofile 5", "@lab soft memlock unlimited", "1:5 hard cpu 99999999999999999", "* - nice -50", "@", ":", "@:", "ann -"} {
		f.Add(seed)
	}
	base, err := parseProcLimits(plainLimits)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := newRules(someone, base, 1<<20, lookupGroup)
		if err := r.apply(text); err != nil && !strings.Contains(text, "@broken") {
			t.Error(err)
		}
		for _, limit := range r.result() {
			if limit.Soft > limit.Hard {
				t.Errorf("%+v", limit)
			}
		}
		systemdLimit(text)
		settings(text, "Manager")
	})
}

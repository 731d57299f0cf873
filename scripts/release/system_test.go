package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"berth/internal/tests/testkit"
)

// debian is a directory with a new Debian, of the release and from the archive
// that apt uses here. It is fetched once, and kept in the user's cache.
func debian(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("debootstrap"); err != nil || os.Getuid() != 0 {
		t.Skip("it needs root and debootstrap")
	}
	targets, _ := exec.Command("apt-get", "indextargets", "--format", "$(ORIGIN) $(CODENAME) $(SITE)", "Created-By: Packages").Output()
	origin, rest, _ := strings.Cut(string(targets), " ")
	rest, _, _ = strings.Cut(rest, "\n")
	release, archive, _ := strings.Cut(rest, " ")
	cache, err := os.UserCacheDir()
	if err != nil || origin != "Debian" {
		t.Skipf("there is no archive of Debian, or no cache: %v: %s", err, targets)
	}
	kept := filepath.Join(cache, "berth-tests", release+".tar")
	root := filepath.Join(t.TempDir(), "root")
	testkit.Must(t, os.MkdirAll(filepath.Dir(kept), 0o700), os.Mkdir(root, 0o755))
	if exec.Command("tar", "-C", root, "-xpf", kept).Run() == nil {
		return root
	}
	testkit.Must(t, os.RemoveAll(root))
	if said, err := exec.Command("debootstrap", "--variant=minbase", release, root, archive).CombinedOutput(); err != nil {
		t.Skipf("debootstrap %s: %v: %s", archive, err, said)
	}
	if said, err := exec.Command("tar", "-C", root, "-cpf", kept+".new", "--exclude=./var/cache/apt/*", ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	testkit.Must(t, os.Rename(kept+".new", kept))
	return root
}

// in runs a shell line in a directory as the root of a system of its own: its
// processes and mounts end with it.
func in(t *testing.T, root, line string) string {
	t.Helper()
	const enter = `mount -t proc proc "$1/proc" && exec chroot "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -ec "$2"`
	out, err := exec.Command("unshare", "--mount", "--pid", "--fork", "--propagation", "private", "sh", "-c", enter, "sh", root, line).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

func packageFile(t *testing.T, kind string) string {
	t.Helper()
	name := map[string]string{"deb": "*_" + runtime.GOARCH + ".deb", "rpm": "*." + machines[runtime.GOARCH] + ".rpm"}[kind]
	found, _ := filepath.Glob(filepath.Join(dist(t), name))
	if len(found) == 0 && !slices.Contains(kinds(), kind) {
		t.Skip("nfpm cannot be fetched")
	}
	if len(found) != 1 {
		t.Fatalf("%v", found)
	}
	return found[0]
}

func TestPackagesInANewDebian(t *testing.T) {
	root := debian(t)
	in(t, root, "useradd --create-home ann")
	t.Run("deb", func(t *testing.T) {
		testkit.Must(t, os.Link(packageFile(t, "deb"), filepath.Join(root, "berth.deb")))
		in(t, root, "dpkg -i /berth.deb")
		if said := in(t, root, "dpkg --verify berth"); said != "" {
			t.Errorf("%s", said)
		}
		if said := in(t, root, "berth version"); !strings.Contains(said, "deb package: /usr/bin/berth") {
			t.Errorf("%s", said)
		}
		// The first example of the README.
		if said := in(t, root, `su ann -c "cd && berth run /usr/share/doc/berth/examples/jobs.txt --sim 2" </dev/null`); !strings.Contains(said, "\n12 jobs in ") || !strings.Contains(said, ": 12 ok\n") {
			t.Errorf("%s", said)
		}
		in(t, root, "bash -ec '. /usr/share/bash-completion/completions/berth; complete -p berth'")
		in(t, root, "gzip -t /usr/share/man/man1/berth.1.gz /usr/share/man/man1/berth-run.1.gz /usr/share/man/man5/*.gz; test -s /usr/share/doc/berth/copyright")
		in(t, root, `for unit in system/berth.service user/berth.service; do
			set -- $(sed -n s/^ExecStart=//p /usr/lib/systemd/$unit); test -x "$1"; done; test -f /usr/lib/systemd/system/berth.socket`)
		scripts(t, root)
		in(t, root, "echo '# mine' >>/etc/berth/config.toml; dpkg -r berth; test -e /etc/berth/config.toml; dpkg -i /berth.deb; grep -q mine /etc/berth/config.toml; dpkg --purge berth")
		if left := in(t, root, "find / -xdev -path /proc -prune -o -path /home -prune -o -path /tmp -prune -o -name '*berth*' ! -name berth.deb -print"); left != "" {
			t.Errorf("purge leaves\n%s", left)
		}
	})
	t.Run("rpm", func(t *testing.T) {
		if _, err := exec.LookPath("rpm"); err != nil {
			t.Skip("there is no rpm")
		}
		rpm := func(args ...string) {
			t.Helper()
			if said, err := exec.Command("rpm", append([]string{"--root", root}, args...)...).CombinedOutput(); err != nil || strings.Contains(string(said), "scriptlet") {
				t.Errorf("rpm %v: %v: %s", args, err, said)
			}
		}
		rpm("--nodeps", "-i", packageFile(t, "rpm"))
		rpm("--nodeps", "--verify", "berth")
		if said := in(t, root, "berth version"); !strings.Contains(said, "rpm package: /usr/bin/berth") {
			t.Errorf("%s", said)
		}
		if said := in(t, root, `su ann -c "cd && echo '[vram=1G] berth simjob --vram 500' >two.txt && berth run two.txt --sim 1" </dev/null`); !strings.Contains(said, "\n1 job in ") {
			t.Errorf("%s", said)
		}
		rpm("-e", "berth")
		in(t, root, "! test -e /usr/bin/berth && ! test -e /usr/lib/systemd/system/berth.service")
	})
}

// scripts holds what the scripts of a package ask of systemd, which a script in
// its place writes down.
func scripts(t *testing.T, root string) {
	t.Helper()
	const systemctl = "#!/bin/sh\necho \"$*\" >>/asked\ncase $1 in is-enabled) ! test -e /disabled ;; esac\n"
	testkit.Write(t, filepath.Join(root, "usr/bin/systemctl"), systemctl, 0o755)
	testkit.Must(t, os.MkdirAll(filepath.Join(root, "run/systemd/system"), 0o755))
	defer func() {
		testkit.Must(t, os.RemoveAll(filepath.Join(root, "run/systemd")), os.Remove(filepath.Join(root, "usr/bin/systemctl")))
	}()
	const enabled, started = "enable berth.socket berth.service\n", "start berth.socket\nis-enabled --quiet berth.service\nrestart berth.service\n"
	for _, step := range []struct{ line, asked string }{
		{"dpkg -i /berth.deb # an upgrade", "daemon-reload\nis-enabled --quiet berth.socket\n" + started},
		{"touch /disabled; dpkg -i /berth.deb; rm /disabled", "daemon-reload\nis-enabled --quiet berth.socket\nis-enabled --quiet berth.service\n"},
		{"dpkg -r berth", "stop berth.socket berth.service\ndaemon-reload\n"},
		{"dpkg -i /berth.deb", "daemon-reload\nis-enabled --quiet berth.socket\n" + started},
		{"dpkg --purge berth", "stop berth.socket berth.service\ndaemon-reload\n"},
		{"dpkg -i /berth.deb # the first time", "daemon-reload\n" + enabled + "is-enabled --quiet berth.socket\n" + started},
	} {
		in(t, root, "rm -f /asked; "+step.line)
		if asked := testkit.Read(t, filepath.Join(root, "asked")); asked != step.asked {
			t.Errorf("%s asks\n%s", step.line, asked)
		}
	}
	testkit.Must(t, os.Remove(filepath.Join(root, "asked")))
}

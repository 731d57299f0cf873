package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// shared are the files below share/: man pages, completion and the licence.
func (r *release) shared() (files []file) {
	man := filepath.Join(r.work, "man")
	r.run(nil, r.host, "help", "--man", man)
	check(filepath.WalkDir(man, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content := must(os.ReadFile(at))
		inside, _ := filepath.Rel(man, at) // at is below it
		files = append(files, file{"share/man/" + inside + ".gz", 0o644, r.gzip(content)})
		return nil
	}))
	for shell, to := range map[string]string{"bash": "bash-completion/completions/berth", "zsh": "zsh/site-functions/_berth", "fish": "fish/vendor_completions.d/berth.fish"} {
		script := filepath.Join(r.work, "completion")
		r.run(nil, "sh", "-c", `"$0" completion "$1" >"$2"`, r.host, shell, script)
		files = append(files, file{"share/" + to, 0o644, must(os.ReadFile(script))})
	}
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md", "examples/jobs.txt", "packaging/config.toml"} {
		files = append(files, file{"share/doc/berth/" + strings.TrimPrefix(name, "packaging/"), 0o644, must(os.ReadFile(name))})
	}
	return files
}

// units are the units of systemd, for programs in a directory.
func units(dir, bin string) (files []file) {
	for _, name := range []string{"berth.service", "berth.socket", "user/berth.service", "user/berth.socket"} {
		content := must(os.ReadFile(filepath.Join("packaging", name)))
		if !strings.HasPrefix(name, "user/") {
			name = "system/" + name
		}
		files = append(files, file{dir + "/" + name, 0o644, bytes.ReplaceAll(content, []byte("/usr/local/bin/"), []byte(bin+"/"))})
	}
	return files
}

// installed are the files of an installation below a prefix.
func (r *release) installed(arch, kind string) (files []file) {
	programs := r.programs(arch, kind)
	for _, name := range sortedKeys(programs) {
		files = append(files, file{"bin/" + name, 0o755, must(os.ReadFile(programs[name]))})
	}
	return append(files, r.shared()...)
}

// tarball writes what is unpacked into ~/.local or /usr/local.
func (r *release) tarball(arch string) string {
	files := append(r.installed(arch, "tarball"), units("share/doc/berth/systemd", "/usr/local/bin")...)
	sortFiles(files)
	stem := fmt.Sprintf("berth-%s-linux-%s", r.version, arch)
	var out bytes.Buffer
	t := tar.NewWriter(&out)
	for _, f := range files {
		header := &tar.Header{Name: stem + "/" + f.name, Mode: int64(f.mode), Size: int64(len(f.content)), ModTime: r.epoch, Format: tar.FormatUSTAR}
		check(t.WriteHeader(header))
		must(t.Write(f.content))
	}
	check(t.Close())
	name := stem + ".tar.gz"
	check(os.WriteFile(filepath.Join(r.out, name), r.gzip(out.Bytes()), 0o644))
	return name
}

// The scripts of a package, called as dpkg and as rpm do. A daemon for all users
// is what installing a package means; a machine without systemd gets the files
// only. Units that the administrator disabled stay disabled over an upgrade.
const (
	afterInstall = `#!/bin/sh
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
case $1:$2 in configure: | 1:) systemctl enable berth.socket berth.service ;; esac
systemctl is-enabled --quiet berth.socket && systemctl start berth.socket
systemctl is-enabled --quiet berth.service && systemctl restart berth.service
exit 0
`
	// An upgrade leaves the daemon alone: it is restarted after it.
	beforeRemove = `#!/bin/sh
[ -d /run/systemd/system ] || exit 0
case $1 in
remove) systemctl stop berth.socket berth.service ;;
0) systemctl disable --now berth.socket berth.service ;;
esac
exit 0
`
	// A removed deb remembers that its units were enabled, until it is purged.
	afterRemove = `#!/bin/sh
[ "$1" != purge ] || rm -f /etc/systemd/system/sockets.target.wants/berth.socket /etc/systemd/system/multi-user.target.wants/berth.service
case $1 in remove | 0) [ ! -d /run/systemd/system ] || systemctl daemon-reload ;; esac
exit 0
`
)

// system writes a deb or an rpm.
func (r *release) system(kind, arch string) string {
	files := r.installed(arch, "package")
	for i := range files {
		files[i].name = "usr/" + files[i].name
		if kind == "deb" {
			files[i].name = strings.Replace(files[i].name, "zsh/site-functions", "zsh/vendor-completions", 1)
			files[i].name = strings.Replace(files[i].name, "doc/berth/LICENSE", "doc/berth/copyright", 1)
		}
	}
	files = append(files, units("usr/lib/systemd", "/usr/bin")...)
	sortFiles(files)

	root := filepath.Join(r.work, kind+"-"+arch)
	var config strings.Builder
	fmt.Fprintf(&config, `name: berth
arch: %s
platform: linux
version: %s
section: admin
priority: optional
maintainer: the berth developers <berth@localhost>
description: |
  GPU job scheduler for the machine you have
  berth queues commands and runs each on GPUs with room for it.
license: MIT
mtime: %s
scripts: {postinstall: %q, preremove: %q, postremove: %q}
rpm: {buildhost: localhost, group: System/Base}
contents:
`, arch, r.version, r.epoch.Format("2006-01-02T15:04:05Z"), filepath.Join(root, "postinstall"), filepath.Join(root, "preremove"), filepath.Join(root, "postremove"))
	files = append(files, file{"postinstall", 0o755, []byte(afterInstall)}, file{"preremove", 0o755, []byte(beforeRemove)}, file{"postremove", 0o755, []byte(afterRemove)})
	files = append(files, file{"etc/berth/config.toml", 0o644, must(os.ReadFile("packaging/config.toml"))})
	for _, f := range files {
		at := filepath.Join(root, f.name)
		check(os.MkdirAll(filepath.Dir(at), 0o755))
		check(os.WriteFile(at, f.content, f.mode))
		switch {
		case strings.HasPrefix(f.name, "etc/"):
			fmt.Fprintf(&config, "  - {src: %q, dst: %q, type: config|noreplace, file_info: {mode: 0644, owner: root, group: root}}\n", at, "/"+f.name)
		case strings.HasPrefix(f.name, "usr/"):
			fmt.Fprintf(&config, "  - {src: %q, dst: %q, file_info: {mode: %#o, owner: root, group: root}}\n", at, "/"+f.name, f.mode)
		}
	}
	settings := filepath.Join(root, "nfpm.yaml")
	check(os.WriteFile(settings, []byte(config.String()), 0o644))
	name := fmt.Sprintf("berth_%s_%s.deb", r.version, arch)
	if kind == "rpm" {
		name = fmt.Sprintf("berth-%s-1.%s.rpm", r.version, machines[arch])
	}
	r.run([]string{"CGO_ENABLED=0", "GOFLAGS="}, "go", "run", nfpm, "package", "-f", settings, "-p", kind, "-t", filepath.Join(r.out, name))
	return name
}

func (r *release) gzip(content []byte) []byte {
	var out bytes.Buffer
	z, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // the level is known
	_, _ = z.Write(content)                                 // a buffer takes everything
	_ = z.Close()
	return out.Bytes()
}

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"berth/internal/job"
	"berth/internal/text/problem"
)

var queue = Queue{Name: "/run/a.sock"}

// tree writes files: "name", "name=content", "name*" (executable), "name->target"
// and "name/".
func tree(t testing.TB, root string, files ...string) {
	t.Helper()
	for _, file := range files {
		name, content, _ := strings.Cut(file, "=")
		link, target, isLink := strings.Cut(file, "->")
		name, exec := strings.CutSuffix(name, "*")
		if isLink {
			name = link
		}
		path := filepath.Join(root, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		switch {
		case isLink:
			must(t, os.Symlink(target, path))
		case strings.HasSuffix(name, "/"):
			must(t, os.MkdirAll(path, 0o755))
		default:
			must(t, os.WriteFile(path, []byte(content), 0o644))
			if exec {
				must(t, os.Chmod(path, 0o755))
			}
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// here is a place and an empty tree. A closed directory is opened for the end of
// the test.
func here(t testing.TB) (p Place, root string) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	root = filepath.Join(dir, "project")
	must(t, os.Mkdir(root, 0o755))
	t.Cleanup(func() { discard(filepath.Join(dir, "state")) })
	return Place{Dir: filepath.Join(dir, "state", "snapshots"), Limit: DefaultLimit}, root
}

func (p Place) auto(t testing.TB, dir string) Made {
	t.Helper()
	made, err := p.Make(context.Background(), Ask{Queue: queue, Dir: dir, Tree: job.SnapshotAuto})
	must(t, err)
	return made
}

// contents is what is below a directory, in the notation of tree.
func contents(t testing.TB, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	must(t, filepath.WalkDir(root, func(path string, item fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name, _ := filepath.Rel(root, path)
		info, err := item.Info()
		if err != nil {
			return err
		}
		switch {
		case item.IsDir():
			found[name] = "dir"
		case info.Mode().Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			found[name] = "->" + target
			return err
		default:
			text, err := os.ReadFile(path)
			found[name] = fmt.Sprintf("%v %s", info.Mode()&0o100 != 0, text)
			return err
		}
		return nil
	}))
	return found
}

// names are the files and links of a snapshot.
func names(t testing.TB, m Made) []string {
	t.Helper()
	var list []string
	for name, what := range contents(t, m.Path) {
		if what != "dir" {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

func gitIn(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(slices.DeleteFunc(os.Environ(), ofOtherRepository), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b", "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// repo makes the tree a repository and commits everything in it.
func repo(t testing.TB, root string) (commit string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	gitIn(t, root, "init", "-q")
	gitIn(t, root, "add", "-A")
	gitIn(t, root, "commit", "-q", "--allow-empty", "-m", "first")
	return gitIn(t, root, "rev-parse", "HEAD")
}

// TestACopyEqualsItsTree: any tree, with any names; and its id depends on the
// content alone.
func TestACopyEqualsItsTree(t *testing.T) {
	p, root := here(t)
	run := 0
	rapid.Check(t, func(r *rapid.T) {
		if run++; run > 40 { // each waits for the disk
			return
		}
		first, second := filepath.Join(root, fmt.Sprint(run), "a", "same"), filepath.Join(root, fmt.Sprint(run), "b", "same")
		name := rapid.Custom(func(r *rapid.T) string {
			bytes := rapid.SliceOfN(rapid.ByteRange(1, 255), 1, 12).Draw(r, "name")
			return strings.Trim(strings.ReplaceAll("n"+string(bytes), "/", "_"), ".")
		})
		dirs := []string{""}
		files := []string{"at=least one"}
		for range rapid.IntRange(0, 12).Draw(r, "entries") {
			path := filepath.Join(rapid.SampledFrom(dirs).Draw(r, "in"), name.Draw(r, "name"))
			path = strings.NewReplacer("=", "e", "*", "s", "->", "x").Replace(path)
			if slices.ContainsFunc(files, func(f string) bool {
				return strings.HasPrefix(f, path+"/") || strings.HasPrefix(f, path+"=") || strings.HasPrefix(f, path+"*") || strings.HasPrefix(f, path+"->")
			}) || parseRules(defaultRules).ignores(t.Context(), path) {
				continue
			}
			switch rapid.IntRange(0, 3).Draw(r, "kind") {
			case 0:
				dirs, files = append(dirs, path), append(files, path+"/")
			case 1:
				files = append(files, path+"->at")
			case 2:
				files = append(files, path+"*="+rapid.String().Draw(r, "content"))
			default:
				files = append(files, path+"="+rapid.String().Draw(r, "content"))
			}
		}
		for i, file := range files { // a link to what is in the tree stays as it is
			if at, _, isLink := strings.Cut(file, "->"); isLink {
				files[i] = at + "->" + strings.Repeat("../", strings.Count(at, "/")) + "at"
			}
		}
		tree(t, first, files...)
		slices.Reverse(files)
		tree(t, second, files...)
		made := p.auto(t, first)
		if diff := cmp.Diff(contents(t, first), contents(t, made.Path)); diff != "" {
			r.Fatalf("the copy differs (-tree +copy):\n%s", diff)
		}
		if again := p.auto(t, second); again.ID != made.ID || again.Path != made.Path {
			r.Fatalf("the same content twice: %v and %v", made, again)
		}
		tree(t, first, "at=more")
		if other := p.auto(t, first); other.ID == made.ID {
			r.Fatal("another content has the same id")
		}
	})
}

// TestIgnoreRulesAreGits: git itself says which files its rules ignore.
func TestIgnoreRulesAreGits(t *testing.T) {
	_, root := here(t)
	repo(t, root)
	parts := []string{"a", "b", "ab", "A", "a.o", "x y", "a]", "#a", "!a", "a\\", "é", "\xff", "[a]", "-", "z9"}
	var files []string
	for _, one := range parts {
		files = append(files, "f"+one, one+"/f", one+"/"+one+"/g", "d/"+one+"/h")
		for _, two := range parts[:5] {
			files = append(files, one+"/"+two+"."+one)
		}
	}
	for _, file := range files {
		path := filepath.Join(root, file)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, nil, 0o644))
	}
	piece := rapid.SampledFrom([]string{"a", "b", "f", "d", "g", "*", "**", "?", "/", "/", "**/", "/**", "[ab]", "[!a]", "[^f-z]", "[a-", "[]a]", "[[:alpha:]]", "[[:nope:]]", "[[:a]", "[a-\\]]", "\\", "\\*", "\\a", "!", "#", " ", "\\ ", ".", "o", "-", "é", "\xff", "x y", "***", "\\/"})
	line := rapid.Custom(func(r *rapid.T) string { return strings.Join(rapid.SliceOfN(piece, 1, 5).Draw(r, "line"), "") })
	// compare returns how berth differs from git, if that can be compared.
	compare := func(text string) (diff string, compared bool) {
		must(t, os.WriteFile(filepath.Join(root, ".git", "info", "exclude"), []byte(text+"\n"), 0o644))
		want := strings.Split(strings.TrimSuffix(gitRaw(t, root, "ls-files", "-z", "--others", "--exclude-standard"), "\x00"), "\x00")
		slices.Sort(want)
		l := &listing{root: root, own: append(parseRules(".git\n"), parseRules(text)...), most: maxFiles}
		if slices.ContainsFunc(l.own, func(r rule) bool { return r.negated && r.matches(".git") }) {
			return "", false // git never shows its own directory
		}
		must(t, l.plainFiles(context.Background(), ""))
		got := []string{}
		for _, e := range l.entries {
			if !e.mode.IsDir() {
				got = append(got, e.name)
			}
		}
		slices.Sort(got)
		if len(want) == 1 && want[0] == "" {
			want = []string{}
		}
		return cmp.Diff(want, got), true
	}
	// What chance seldom finds: no directory at all, a slash in a class, an escaped
	// slash.
	for _, text := range []string{"**/fa", "**/d/**", "a/**/g", "d/**/h", "d[!x]a/h", "d[^x]a/h", "d[+-9]a/h", "**\\/g", "d/**\\/h", "**fa", "a**/g"} {
		if diff, compared := compare(text); !compared || diff != "" {
			t.Errorf("rules %q (-git +berth): %v\n%s", text, compared, diff)
		}
	}
	if t.Failed() {
		return
	}
	checks := 0
	rapid.Check(t, func(r *rapid.T) {
		text := strings.Join(rapid.SliceOfN(line, 1, 4).Draw(r, "lines"), rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(r, "newline"))
		diff, compared := compare(text)
		if diff != "" {
			r.Fatalf("rules %q (-git +berth):\n%s", text, diff)
		}
		if compared {
			checks++
		}
	})
	if checks == 0 {
		t.Fatal("nothing was compared")
	}
}

func gitRaw(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.Output()
	must(t, err)
	return string(out)
}

// TestAWorkTreeIsWhatGitSays: tracked files as they are now, and untracked ones
// that are not ignored. git status is the judge.
func TestAWorkTreeIsWhatGitSays(t *testing.T) {
	p, top := here(t)
	run := 0
	rapid.Check(t, func(r *rapid.T) {
		if run++; run > 25 { // each takes a dozen processes
			return
		}
		root := filepath.Join(top, fmt.Sprint(run))
		files := []string{".gitignore=*.log\nout/\n"}
		for i := range 12 {
			files = append(files, fmt.Sprintf("%s%d%s=%d", rapid.SampledFrom([]string{"f", "src/f", "out/f", "src/deep/é f"}).Draw(r, "place"), i, rapid.SampledFrom([]string{"", ".log", ".py"}).Draw(r, "kind"), i))
		}
		cut := rapid.IntRange(1, len(files)).Draw(r, "committed")
		tree(t, root, files[:cut]...)
		repo(t, root)
		tree(t, root, files[cut:]...)
		for _, file := range files[1:cut] {
			name, _, _ := strings.Cut(file, "=")
			switch rapid.IntRange(0, 4).Draw(r, "fate") {
			case 0:
				must(t, os.Remove(filepath.Join(root, name)))
			case 1:
				tree(t, root, name+"=changed")
			}
		}
		want := map[string]bool{}
		for name := range strings.SplitSeq(gitRaw(t, root, "ls-tree", "-r", "-z", "--name-only", "HEAD"), "\x00") {
			want[name] = true
		}
		status := gitRaw(t, root, "status", "--porcelain", "-z", "--untracked-files=all")
		for line := range strings.SplitSeq(status, "\x00") {
			switch {
			case strings.HasPrefix(line, " D "):
				delete(want, line[3:])
			case strings.HasPrefix(line, "?? "):
				want[line[3:]] = true
			}
		}
		delete(want, "")
		made := p.auto(t, root)
		got := map[string]bool{}
		for _, name := range names(t, made) {
			got[name] = true
			ours, _ := os.ReadFile(filepath.Join(made.Path, name))
			theirs, _ := os.ReadFile(filepath.Join(root, name))
			if string(ours) != string(theirs) {
				r.Fatalf("%s is %q, not %q", name, ours, theirs)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			r.Fatalf("(-git +snapshot):\n%s", diff)
		}
		if made.Dirty != (status != "") || made.Commit != gitIn(t, root, "rev-parse", "HEAD") {
			r.Fatalf("%+v, git says %q", made, status)
		}
	})
}

func TestWhatIsPartOfASnapshot(t *testing.T) {
	for _, row := range []struct {
		says  string
		files []string
		git   bool
		after []string // files written after the commit
		want  string
	}{
		{says: "everything that is no cache, package or log",
			files: []string{"a.py", "__pycache__/a.pyc", "b.pyc", "node_modules/x/y", "berth_logs/1", "lib/.venv/pyvenv.cfg", "lib/.venv/bin/python", "conda/conda-meta/h", "env/rl.py", ".hidden"},
			want:  ".hidden a.py env/rl.py"},
		{says: "without what .berthignore names", files: []string{"a.py", "data/x", "data/keep", ".berthignore=/data/*\n!keep\n"}, want: ".berthignore a.py data/keep"},
		{says: "with a default that it takes back", files: []string{"a", "venv/pyvenv.cfg", ".berthignore=!venv/\n"}, want: ".berthignore a venv/pyvenv.cfg"},
		{says: "git: .berthignore counts for tracked files too", git: true, files: []string{"a.py", "big/x", ".berthignore=big/\n"}, want: ".berthignore a.py"},
		{says: "git: caches count only if they are tracked", git: true, files: []string{"a", "__pycache__/t"}, after: []string{"berth_logs/1", "src/__pycache__/u", "new"}, want: "__pycache__/t a new"},
	} {
		t.Run(row.says, func(t *testing.T) {
			p, root := here(t)
			tree(t, root, row.files...)
			if row.git {
				repo(t, root)
			}
			tree(t, root, row.after...)
			if got := strings.Join(names(t, p.auto(t, root)), " "); got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
		})
	}
}

// TestSubmodules: their files are part of it, and so are those of a repository
// inside another.
func TestSubmodules(t *testing.T) {
	p, root := here(t)
	lib := filepath.Join(filepath.Dir(root), "lib")
	tree(t, lib, "lib.py=1", ".gitignore=*.o\n")
	repo(t, lib)
	tree(t, root, "main.py")
	repo(t, root)
	gitIn(t, root, "-c", "protocol.file.allow=always", "submodule", "-q", "add", lib, "deps/lib")
	gitIn(t, root, "-c", "protocol.file.allow=always", "submodule", "-q", "add", lib, "deps/absent")
	gitIn(t, root, "commit", "-q", "-m", "second")
	gitIn(t, root, "submodule", "-q", "deinit", "deps/absent")
	tree(t, root, "deps/lib/lib.py=2", "deps/lib/a.o", "deps/lib/new.py")
	tree(t, filepath.Join(root, "inner"), "x.py")
	repo(t, filepath.Join(root, "inner"))
	made := p.auto(t, root)
	if got := strings.Join(names(t, made), " "); got != ".gitmodules deps/lib/.gitignore deps/lib/lib.py deps/lib/new.py inner/x.py main.py" {
		t.Error(got)
	}
	if text, _ := os.ReadFile(filepath.Join(made.Path, "deps/lib/lib.py")); string(text) != "2" || !made.Dirty {
		t.Errorf("lib.py is %q, dirty %v", text, made.Dirty)
	}
	if len(made.Notices) != 1 || !strings.Contains(made.Notices[0], "deps/absent is not checked out") {
		t.Error(made.Notices)
	}
}

func TestLinks(t *testing.T) {
	p, root := here(t)
	outside := filepath.Dir(root)
	tree(t, root, "src/a.py=1", "ignored/x", ".berthignore=ignored/\n", "in->src/a.py", "whole->"+filepath.Join(root, "src/a.py"),
		"src/up->../in", "out->../elsewhere", "src/far->/etc/passwd", "data->ignored", "dir->src", "by->dir/a.py", "dangling->nothing")
	want := map[string]string{
		"in": "src/a.py", "whole": "src/a.py", "src/up": "../in", "dir": "src", "by": "dir/a.py",
		"out": filepath.Join(outside, "elsewhere"), "src/far": "/etc/passwd", "data": filepath.Join(root, "ignored"), "dangling": filepath.Join(root, "nothing"),
	}
	made := p.auto(t, root)
	got := map[string]string{}
	for name, what := range contents(t, made.Path) {
		if target, isLink := strings.CutPrefix(what, "->"); isLink {
			got[name] = target
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestADirectoryThatBecameALink: git still lists the files that were in it.
func TestADirectoryThatBecameALink(t *testing.T) {
	p, root := here(t)
	tree(t, root, "a", "data/x=secret")
	repo(t, root)
	must(t, os.Rename(filepath.Join(root, "data"), filepath.Join(filepath.Dir(root), "moved")))
	tree(t, root, "data->../moved")
	if got := strings.Join(names(t, p.auto(t, root)), " "); got != "a data" {
		t.Error(got)
	}
}

func TestASnapshotIsReadOnlyAndItsUsersAlone(t *testing.T) {
	p, root := here(t)
	tree(t, root, "a", "run.sh*", "src/b")
	made := p.auto(t, root)
	for path, want := range map[string]fs.FileMode{
		p.Dir: 0o700, filepath.Dir(made.Path): 0o700, made.Path: 0o555, made.Path + "/src": 0o555, made.Path + "/a": 0o444, made.Path + "/run.sh": 0o555,
	} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want %v", path, info.Mode(), err, want)
		}
	}
	must(t, os.Chmod(p.Dir, 0o755))
	p.auto(t, root)
	if info, _ := os.Stat(p.Dir); info.Mode().Perm() != 0o700 {
		t.Errorf("the place stays open to others: %v", info.Mode())
	}
}

// TestUnchangedFilesAreStoredOnce: another snapshot takes the room of what
// changed.
func TestUnchangedFilesAreStoredOnce(t *testing.T) {
	p, root := here(t)
	tree(t, root, "a=1", "b=2", "copy=1", "tool*=1")
	first := p.auto(t, root)
	tree(t, root, "b=3")
	second := p.auto(t, root)
	inode := func(path string) uint64 {
		info, err := os.Stat(path)
		must(t, err)
		return info.Sys().(*syscall.Stat_t).Ino
	}
	if inode(first.Path+"/a") != inode(second.Path+"/a") || inode(first.Path+"/a") != inode(first.Path+"/copy") {
		t.Error("the same content is stored twice")
	}
	if inode(first.Path+"/a") == inode(first.Path+"/tool") {
		t.Error("an executable file shares its permissions with another")
	}
	if text, _ := os.ReadFile(first.Path + "/b"); string(text) != "2" {
		t.Errorf("the first snapshot changed: %q", text)
	}
	// A content that was changed by hand is not used again.
	must(t, os.Chmod(second.Path+"/a", 0o644))
	must(t, os.WriteFile(second.Path+"/a", []byte("X"), 0o644))
	tree(t, root, "b=4")
	if text, _ := os.ReadFile(p.auto(t, root).Path + "/a"); string(text) != "1" {
		t.Errorf("a changed blob was used: %q", text)
	}
}

func TestWhichTree(t *testing.T) {
	p, root := here(t)
	tree(t, root, "a", "sub/b", "ignored/c", ".gitignore=ignored/\n", "empty/")
	tree(t, filepath.Dir(root), "link->project/sub")
	repo(t, root)
	outside := filepath.Dir(root)
	for _, row := range []struct {
		says, dir, tree string
		want, at        string // the tree, and the job's directory
	}{
		{"the work tree of the directory", root + "/sub", job.SnapshotAuto, root, root + "/sub"},
		{"by way of a link", outside + "/link", job.SnapshotAuto, root, root + "/sub"},
		{"a directory in it alone", root + "/sub", root + "/sub", root + "/sub", root + "/sub"},
		{"a directory that git ignores is a plain one", root + "/ignored", job.SnapshotAuto, root + "/ignored", root + "/ignored"},
		{"another than the job's", outside, root, root, outside},
	} {
		made, err := p.Make(context.Background(), Ask{Queue: queue, Dir: row.dir, Tree: row.tree})
		if err != nil || made.Tree != row.want || made.Dir != row.at {
			t.Errorf("%s: %+v %v", row.says, made, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, row := range []struct {
		says string
		do   func(t *testing.T, p *Place, root string) Ask
		want string
	}{
		{"an empty directory", func(*testing.T, *Place, string) Ask { return Ask{} }, "has no files that are not ignored"},
		{"a missing one", func(_ *testing.T, _ *Place, root string) Ask { return Ask{Tree: root + "/none"} }, "expected a directory, found"},
		{"a file", func(t *testing.T, _ *Place, root string) Ask {
			tree(t, root, "f")
			return Ask{Tree: root + "/f"}
		}, "not a directory"},
		{"too many bytes", func(t *testing.T, p *Place, root string) Ask {
			p.Limit = 10
			tree(t, root, "a=1", "data/set/x="+strings.Repeat("x", 3<<20), "data/y=yy")
			return Ask{}
		}, "has 3.0 MiB and 3 files; at most 10 bytes and 100,000 files are copied. The largest parts: data/set/ (3.0 MiB, 1 file)"},
		{"a broken repository", func(t *testing.T, _ *Place, root string) Ask {
			tree(t, root, "a", ".git/HEAD=nonsense")
			return Ask{}
		}, "git cannot read the repository of"},
		{"a directory that is not part of it", func(t *testing.T, _ *Place, root string) Ask {
			tree(t, root, "a", "new/")
			repo(t, root)
			return Ask{Dir: root + "/new"}
		}, "the working directory"},
		{"no git", func(t *testing.T, _ *Place, root string) Ask {
			tree(t, root, "a", ".git/")
			t.Setenv("PATH", "/nowhere")
			return Ask{}
		}, "but git is not in PATH"},
		{"a file that cannot be read", func(t *testing.T, _ *Place, root string) Ask {
			if os.Geteuid() == 0 {
				t.Skip("root reads everything")
			}
			tree(t, root, "a")
			must(t, os.Chmod(root+"/a", 0))
			return Ask{}
		}, "permission denied"},
	} {
		t.Run(row.says, func(t *testing.T) {
			p, root := here(t)
			a := row.do(t, &p, root)
			a.Queue = queue
			if a.Dir == "" {
				a.Dir = root
			}
			if a.Tree == "" {
				a.Tree = job.SnapshotAuto
			}
			made, err := p.Make(context.Background(), a)
			if err == nil || !strings.Contains(err.Error(), row.want) || problem.KindOf(err) == "" {
				t.Errorf("%+v %v", made, err)
			}
			if found, _ := filepath.Glob(p.Dir + "/*"); slices.ContainsFunc(found, func(path string) bool {
				return isID(filepath.Base(path)) || strings.HasPrefix(filepath.Base(path), tmpName)
			}) {
				t.Errorf("it left %v", found)
			}
		})
	}
}

// TestSocketsAndPipes are left out, and that is said.
func TestSocketsAndPipes(t *testing.T) {
	p, root := here(t)
	tree(t, root, "a")
	must(t, syscall.Mkfifo(root+"/pipe", 0o600))
	made := p.auto(t, root)
	if len(made.Notices) != 1 || !strings.Contains(made.Notices[0], "1 sockets, pipes or devices") || len(names(t, made)) != 1 {
		t.Error(made.Notices, names(t, made))
	}
}

// TestAFileThatChangesWhileItIsRead is tried again, and then refused by name.
func TestAFileThatChangesWhileItIsRead(t *testing.T) {
	p, root := here(t)
	tree(t, root, "a=1", "b=2")
	must(t, p.open())
	l, err := list(context.Background(), Ask{Dir: root, Tree: job.SnapshotAuto})
	must(t, err)
	tree(t, root, "b=33")
	changed := (*changedError)(nil)
	if err := l.read(context.Background()); !errors.As(err, &changed) || changed.path != root+"/b" {
		t.Errorf("before it is read: %v", err)
	}
	l, err = list(context.Background(), Ask{Dir: root, Tree: job.SnapshotAuto})
	must(t, err)
	must(t, l.read(context.Background()))
	tree(t, root, "b=44")
	if err := p.build(context.Background(), l, l.id()); !errors.As(err, &changed) || changed.path != root+"/b" {
		t.Errorf("before it is copied: %v", err)
	}
	if _, err := os.Stat(filepath.Join(p.Dir, l.id())); err == nil {
		t.Error("half a snapshot is there")
	}
}

func TestRemove(t *testing.T) {
	p, root := here(t)
	ctx := context.Background()
	uses := func(ids ...string) func(context.Context) (map[string]bool, error) {
		return func(context.Context) (map[string]bool, error) {
			used := map[string]bool{}
			for _, id := range ids {
				used[id] = true
			}
			return used, nil
		}
	}
	tree(t, root, "same=1", "a=1")
	first := p.auto(t, root)
	tree(t, root, "a=2")
	second := p.auto(t, root)
	other := Queue{Name: "run", Dir: filepath.Join(root, "gone")}
	shared, err := p.Make(ctx, Ask{Queue: other, Dir: root, Tree: root})
	must(t, err)
	if shared.ID != second.ID {
		t.Fatal("the same tree has two ids")
	}
	there := func(m Made) bool { _, err := os.Stat(m.Path + "/a"); return err == nil }
	now := time.Now()
	check := func(says string, want ...bool) {
		t.Helper()
		if got := []bool{there(first), there(second)}; !slices.Equal(got, want) {
			t.Errorf("%s: there %v, want %v", says, got, want)
		}
	}
	tree(t, p.Dir, "tmp-123/project/half") // left by a client that was killed
	must(t, p.Remove(ctx, queue, now, uses()))
	check("a submission may be on its way", true, true)
	if found, _ := filepath.Glob(p.Dir + "/tmp-*"); len(found) > 0 {
		t.Errorf("unfinished: %v", found)
	}
	if p.Due(now.Add(time.Minute)) || !p.Due(now.Add(2*time.Hour)) {
		t.Error("it looks too often, or never")
	}
	later := now.Add(25 * time.Hour)
	must(t, p.Remove(ctx, queue, later, uses(first.ID)))
	check("a job needs the first, another queue the second", true, true)
	lock, err := p.lock(syscall.LOCK_SH)
	must(t, err)
	must(t, p.Remove(ctx, queue, later, uses()))
	check("not while a snapshot is being made", true, true)
	lock.Close()
	must(t, p.Remove(ctx, queue, later, uses()))
	check("no job needs the first any more", false, true)
	must(t, p.Remove(ctx, queue, later.Add(goneTime), uses()))
	check("the other queue is long gone", false, false)
	if blobs, _ := os.ReadDir(filepath.Join(p.Dir, blobsDir)); len(blobs) > 0 {
		t.Errorf("%d contents are left", len(blobs))
	}
	failing := func(context.Context) (map[string]bool, error) { return nil, errors.New("no answer") }
	third := p.auto(t, root)
	if err := p.Remove(ctx, queue, later.Add(2*goneTime), failing); err == nil || !there(third) {
		t.Errorf("without an answer nothing may go: %v", err)
	}
}

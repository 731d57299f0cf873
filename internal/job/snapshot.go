package job

import (
	"path"
	"strings"
)

// Snapshot is the copy of the code that a job runs, made when the job was
// submitted. The zero value means that there is no copy.
type Snapshot struct {
	// Tree is the directory that was copied. In a job that is being read it is
	// what the user asked for: SnapshotAuto or a directory.
	Tree   string `json:"tree,omitempty" doc:"the directory that was copied"`
	ID     string `json:"id,omitempty" doc:"the same for the same content"`
	Path   string `json:"path,omitempty" doc:"the copy"`
	Commit string `json:"commit,omitempty" doc:"the git commit that was checked out"`
	Dirty  bool   `json:"dirty,omitempty" doc:"the copy has changes that were not committed"`
	// Script is the script of ` + "`berth submit SCRIPT`" + `, if it is in the tree.
	Script string `json:"script,omitempty" doc:"the submitted script; the job runs its copy"`
}

// SnapshotAuto asks for the git tree that contains the job's directory, or for
// the directory itself if it is not in one.
const SnapshotAuto = "auto"

// Inside is where a path of the tree is in the copy. Any other path stays as it
// is.
func (s Snapshot) Inside(name string) string {
	if s.Path == "" || !path.IsAbs(name) {
		return name
	}
	name = path.Clean(name)
	if name == s.Tree {
		return s.Path
	}
	if rest, within := strings.CutPrefix(name, strings.TrimSuffix(s.Tree, "/")+"/"); within {
		return path.Join(s.Path, rest)
	}
	return name
}

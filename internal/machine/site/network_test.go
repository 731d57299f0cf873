package site

import (
	"path/filepath"
	"testing"
)

func TestOnNetworkKnowsALocalDisk(t *testing.T) {
	if remote, err := OnNetwork(t.TempDir()); err != nil || remote {
		t.Skipf("the temporary directory is on a network here: %v, %v", remote, err)
	}
	if _, err := OnNetwork(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a path that does not exist is on some file system")
	}
}

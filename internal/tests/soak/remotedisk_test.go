package soak

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// remoteDiskEnv makes the test program the server of a disk like one of another
// machine: DIR.behind, shown as DIR. Told "hang", it answers nobody until it is
// told otherwise; told "stale", it knows none of its files; told "slow", every
// sync takes two seconds.
const remoteDiskEnv = "SOAK_REMOTE_DISK"

type remoteDisk struct{ *cutDisk }

func newRemoteDisk(t *testing.T, dir string) *remoteDisk {
	t.Helper()
	for _, d := range []string{dir, dir + ".behind"} {
		if err := os.Mkdir(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	d := &remoteDisk{startDisk(t, dir, remoteDiskEnv)}
	t.Cleanup(func() { d.is("well") })
	return d
}

// is sets how the disk fares.
func (d *remoteDisk) is(mood string) { d.order(mood) }

func serveRemoteDisk(dir string) int {
	root, err := fs.NewLoopbackRoot(dir + ".behind")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	none := time.Duration(0) // the kernel remembers nothing
	raw := &moody{RawFileSystem: fs.NewNodeFS(root, &fs.Options{EntryTimeout: &none, AttrTimeout: &none, NullPermissions: true})}
	raw.changed.L = &raw.mu
	server, err := fuse.NewServer(raw, dir, &fuse.MountOptions{AllowOther: true, DirectMountStrict: true, Name: "remotedisk", FsName: filepath.Base(dir), DisableXAttrs: true})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	go server.Serve()
	if err := server.WaitMount(); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("mounted")
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		raw.set(strings.TrimSpace(orders.Text()))
		fmt.Println("ok")
	}
	raw.set("well")
	unmount(server, dir)
	return 0
}

// moody asks its mood before every call.
type moody struct {
	fuse.RawFileSystem
	mu      sync.Mutex
	changed sync.Cond
	mood    string
}

func (m *moody) set(mood string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mood = mood
	m.changed.Broadcast()
}

// may waits while the disk hangs, and is what its mood makes of a call.
func (m *moody) may() fuse.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.mood == "hang" {
		m.changed.Wait()
	}
	if m.mood == "stale" {
		return fuse.Status(syscall.ESTALE)
	}
	return fuse.OK
}

func (m *moody) sync(real func() fuse.Status) fuse.Status {
	m.mu.Lock()
	slow := m.mood == "slow"
	m.mu.Unlock()
	if slow {
		<-time.After(2 * time.Second) // that is how slow it is
	}
	if s := m.may(); !s.Ok() {
		return s
	}
	return real()
}

func (m *moody) Lookup(cancel <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if s := m.may(); !s.Ok() {
		return s
	}
	return m.RawFileSystem.Lookup(cancel, header, name, out)
}

func (m *moody) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	if s := m.may(); !s.Ok() {
		return s
	}
	return m.RawFileSystem.GetAttr(cancel, in, out)
}

func (m *moody) Access(cancel <-chan struct{}, in *fuse.AccessIn) fuse.Status {
	if s := m.may(); !s.Ok() {
		return s
	}
	return m.RawFileSystem.Access(cancel, in)
}

func (m *moody) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if s := m.may(); !s.Ok() {
		return s
	}
	return m.RawFileSystem.Open(cancel, in, out)
}

func (m *moody) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	if s := m.may(); !s.Ok() {
		return s
	}
	return m.RawFileSystem.Create(cancel, in, name, out)
}

func (m *moody) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	if s := m.may(); !s.Ok() {
		return s
	}
	return m.RawFileSystem.Mkdir(cancel, in, name, out)
}

func (m *moody) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	if s := m.may(); !s.Ok() {
		return nil, s
	}
	return m.RawFileSystem.Read(cancel, in, buf)
}

func (m *moody) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	if s := m.may(); !s.Ok() {
		return 0, s
	}
	return m.RawFileSystem.Write(cancel, in, data)
}

func (m *moody) OpenDir(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if s := m.may(); !s.Ok() {
		return s
	}
	return m.RawFileSystem.OpenDir(cancel, in, out)
}

func (m *moody) StatFs(cancel <-chan struct{}, in *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	if s := m.may(); !s.Ok() {
		return s
	}
	return m.RawFileSystem.StatFs(cancel, in, out)
}

func (m *moody) Flush(cancel <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	if s := m.may(); !s.Ok() {
		return s
	}
	return m.RawFileSystem.Flush(cancel, in)
}

func (m *moody) Fsync(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return m.sync(func() fuse.Status { return m.RawFileSystem.Fsync(cancel, in) })
}

func (m *moody) FsyncDir(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return m.sync(func() fuse.Status { return m.RawFileSystem.FsyncDir(cancel, in) })
}

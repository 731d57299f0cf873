package soak

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// cutDisk is a file system that forgets, when it is cut, every write that was not
// synced: the contents of a file without fsync, and a name whose directory was not
// synced. It is a FUSE server in a process of its own, because a program that
// serves a file system and starts others on it can wait for itself.
type cutDisk struct {
	t      *testing.T
	dir    string
	server *exec.Cmd
	orders io.WriteCloser
	says   *bufio.Reader
}

// cutDiskEnv makes the test program the server.
const cutDiskEnv = "SOAK_CUT_DISK"

func newCutDisk(t *testing.T, dir string) *cutDisk {
	t.Helper()
	return startDisk(t, dir, cutDiskEnv)
}

// startDisk has another run of the test program serve a file system.
func startDisk(t *testing.T, dir, variable string) *cutDisk {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil || os.Getuid() != 0 {
		t.Skip("a disk that fails needs /dev/fuse and root")
	}
	d := &cutDisk{t: t, dir: dir, server: exec.Command(os.Args[0])}
	d.server.Env, d.server.Stderr = append(os.Environ(), variable+"="+dir), os.Stderr
	var err error
	if d.orders, err = d.server.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := d.server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.says = bufio.NewReader(out)
	if err := d.server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	if answer := d.answer(); answer != "mounted" {
		t.Skipf("a disk that fails: %s", answer)
	}
	return d
}

func (d *cutDisk) answer() string {
	d.t.Helper()
	line, err := d.says.ReadString('\n')
	if err != nil {
		d.t.Fatalf("the disk's server ended: %v", err)
	}
	return strings.TrimSpace(line)
}

func (d *cutDisk) order(text string) string {
	d.t.Helper()
	if _, err := fmt.Fprintln(d.orders, text); err != nil {
		d.t.Fatal(err)
	}
	return d.answer()
}

// fail has every change fail after so many more of them, as on a disk that is gone.
func (d *cutDisk) fail(after int) { d.order("fail " + strconv.Itoa(after)) }

// changes counts changes since the last order to fail or cut.
func (d *cutDisk) changes() int {
	n, err := strconv.Atoi(d.order("changes"))
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}

// cut forgets what was not synced and mounts the disk again.
func (d *cutDisk) cut() {
	d.t.Helper()
	if answer := d.order("cut"); answer != "mounted" {
		d.t.Fatal(answer)
	}
}

// serveCutDisk is the server.
func serveCutDisk(dir string) int {
	disk := &disk{left: -1}
	disk.root = &node{disk: disk, attr: fuse.Attr{Mode: syscall.S_IFDIR | 0o777}}
	server := disk.mount(dir)
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		words := strings.Fields(orders.Text())
		switch words[0] {
		case "fail":
			after, _ := strconv.Atoi(words[1])
			disk.set(after)
			fmt.Println("ok")
		case "changes":
			disk.mu.Lock()
			fmt.Println(disk.done)
			disk.mu.Unlock()
		case "cut":
			unmount(server, dir)
			disk.root = disk.root.durableCopy(map[*node]*node{})
			disk.set(-1)
			server = disk.mount(dir)
		}
	}
	unmount(server, dir)
	return 0
}

func unmount(server *fuse.Server, dir string) {
	if server == nil {
		return
	}
	if err := server.Unmount(); err != nil {
		syscall.Unmount(dir, syscall.MNT_DETACH) // something still uses it
		return
	}
	server.Wait()
}

// disk is the tree, and how many more changes it takes; below 0: any number.
type disk struct {
	root *node

	mu         sync.Mutex
	left, done int
}

func (d *disk) set(left int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left, d.done = left, 0
}

// change counts a change, or fails it.
func (d *disk) change() syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left == 0 {
		return syscall.EIO
	}
	d.left--
	d.done++
	return fs.OK
}

func (d *disk) mount(dir string) *fuse.Server {
	options := &fs.Options{NullPermissions: true}
	options.MountOptions = fuse.MountOptions{AllowOther: true, DirectMountStrict: true, Name: "cutdisk", FsName: "cutdisk", DisableXAttrs: true}
	options.OnAdd = func(ctx context.Context) { d.root.grow(ctx) }
	server, err := fs.Mount(dir, d.root, options)
	if err != nil {
		fmt.Println(err)
		return nil
	}
	fmt.Println("mounted")
	return server
}

// node is a file, a directory, a link or a socket.
type node struct {
	fs.Inode
	disk *disk

	mu     sync.Mutex
	attr   fuse.Attr
	data   []byte
	synced []byte           // of a file: what a cut leaves
	names  map[string]*node // of a directory: what a cut leaves
}

// durableCopy is the tree that a cut leaves.
func (n *node) durableCopy(seen map[*node]*node) *node {
	if there := seen[n]; there != nil {
		return there
	}
	c := &node{disk: n.disk, attr: n.attr, data: append([]byte(nil), n.synced...), synced: n.synced, names: map[string]*node{}}
	if n.attr.Mode&syscall.S_IFMT == syscall.S_IFLNK {
		c.data = n.data
	}
	seen[n] = c
	for name, child := range n.names {
		c.names[name] = child.durableCopy(seen)
	}
	return c
}

// grow hangs the names that a cut left into the mounted tree.
func (n *node) grow(ctx context.Context) {
	for name, child := range n.names {
		n.AddChild(name, n.NewPersistentInode(ctx, child, fs.StableAttr{Mode: child.attr.Mode & syscall.S_IFMT}), true)
		child.grow(ctx)
	}
}

func (n *node) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.fill(&out.Attr)
	return fs.OK
}

func (n *node) fill(attr *fuse.Attr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ino := attr.Ino
	*attr = n.attr
	attr.Ino, attr.Size, attr.Nlink = ino, uint64(len(n.data)), 1
}

func (n *node) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if errno := n.disk.change(); errno != fs.OK {
		return errno
	}
	n.mu.Lock()
	if mode, ok := in.GetMode(); ok {
		n.attr.Mode = n.attr.Mode&syscall.S_IFMT | mode&^syscall.S_IFMT
	}
	if uid, ok := in.GetUID(); ok {
		n.attr.Uid = uid
	}
	if gid, ok := in.GetGID(); ok {
		n.attr.Gid = gid
	}
	if at, ok := in.GetMTime(); ok {
		n.attr.SetTimes(nil, &at, nil)
	}
	if size, ok := in.GetSize(); ok {
		n.resize(int(size))
	}
	n.mu.Unlock()
	n.fill(&out.Attr)
	return fs.OK
}

func (n *node) resize(size int) {
	if size <= len(n.data) {
		n.data = n.data[:size:size]
		return
	}
	n.data = append(n.data, make([]byte, size-len(n.data))...)
}

// make adds a new node under a name.
func (n *node) make(ctx context.Context, name string, mode uint32, data []byte, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if errno := n.disk.change(); errno != fs.OK {
		return nil, errno
	}
	child := &node{disk: n.disk, attr: fuse.Attr{Mode: mode}, data: data}
	if caller, ok := fuse.FromContext(ctx); ok {
		child.attr.Owner = caller.Owner
	}
	inode := n.NewPersistentInode(ctx, child, fs.StableAttr{Mode: mode & syscall.S_IFMT})
	child.fill(&out.Attr)
	return inode, fs.OK
}

func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.make(ctx, name, mode&^syscall.S_IFMT|syscall.S_IFDIR, nil, out)
}

func (n *node) Mknod(ctx context.Context, name string, mode, _ uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.make(ctx, name, mode, nil, out)
}

func (n *node) Symlink(ctx context.Context, target, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.make(ctx, name, syscall.S_IFLNK|0o777, []byte(target), out)
}

func (n *node) Link(_ context.Context, target fs.InodeEmbedder, _ string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if errno := n.disk.change(); errno != fs.OK {
		return nil, errno
	}
	target.(*node).fill(&out.Attr)
	return target.EmbeddedInode(), fs.OK
}

func (n *node) Create(ctx context.Context, name string, _, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	inode, errno := n.make(ctx, name, mode&^syscall.S_IFMT|syscall.S_IFREG, nil, out)
	return inode, nil, 0, errno
}

func (n *node) Unlink(context.Context, string) syscall.Errno { return n.disk.change() }
func (n *node) Rmdir(context.Context, string) syscall.Errno  { return n.disk.change() }

func (n *node) Rename(context.Context, string, fs.InodeEmbedder, string, uint32) syscall.Errno {
	return n.disk.change()
}

func (n *node) Readlink(context.Context) ([]byte, syscall.Errno) { return n.data, fs.OK }

func (n *node) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_KEEP_CACHE, fs.OK
}

func (n *node) Read(_ context.Context, _ fs.FileHandle, into []byte, from int64) (fuse.ReadResult, syscall.Errno) {
	n.mu.Lock()
	defer n.mu.Unlock()
	from = min(from, int64(len(n.data)))
	end := min(from+int64(len(into)), int64(len(n.data)))
	return fuse.ReadResultData(append([]byte(nil), n.data[from:end]...)), fs.OK
}

func (n *node) Write(_ context.Context, _ fs.FileHandle, text []byte, at int64) (uint32, syscall.Errno) {
	if errno := n.disk.change(); errno != fs.OK {
		return 0, errno
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if end := int(at) + len(text); end > len(n.data) {
		n.resize(end)
	}
	copy(n.data[at:], text)
	return uint32(len(text)), fs.OK
}

func (n *node) Allocate(_ context.Context, _ fs.FileHandle, at, size uint64, mode uint32) syscall.Errno {
	if errno := n.disk.change(); errno != fs.OK {
		return errno
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if end := int(at + size); mode == 0 && end > len(n.data) {
		n.resize(end)
	}
	return fs.OK
}

// Fsync makes the contents of a file durable.
func (n *node) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	if errno := n.disk.change(); errno != fs.OK {
		return errno
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.synced = append([]byte(nil), n.data...)
	return fs.OK
}

// directory is an open directory; syncing it makes its names durable.
type directory struct {
	fs.DirStream
	node *node
}

func (d *directory) Fsyncdir(context.Context, uint32) syscall.Errno {
	n := d.node
	if errno := n.disk.change(); errno != fs.OK {
		return errno
	}
	names := map[string]*node{}
	for name, child := range n.Children() {
		names[name] = child.Operations().(*node)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.names = maps.Clone(names)
	return fs.OK
}

func (d *directory) Readdirent(context.Context) (*fuse.DirEntry, syscall.Errno) {
	if !d.HasNext() {
		return nil, fs.OK
	}
	entry, errno := d.Next()
	return &entry, errno
}

func (n *node) OpendirHandle(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	var list []fuse.DirEntry
	for name, child := range n.Children() {
		list = append(list, fuse.DirEntry{Name: name, Mode: child.Mode(), Ino: child.StableAttr().Ino})
	}
	return &directory{fs.NewListDirStream(list), n}, 0, fs.OK
}

func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	out.Bsize, out.Blocks, out.Bfree, out.Bavail, out.Files, out.Ffree, out.NameLen = 4096, 1<<24, 1<<23, 1<<23, 1<<20, 1<<20, 255
	return fs.OK
}

// close unmounts the disk before the test ends.
func (d *cutDisk) close() {
	d.orders.Close()
	d.server.Wait()
}

package site

import "golang.org/x/sys/unix"

// networkFS are network file systems by their statfs magic number.
var networkFS = map[uint32]string{
	0x6969:     "nfs",
	0x517b:     "smb",
	0xff534d42: "cifs",
	0xfe534d42: "smb2",
	0x564c:     "ncp",
	0x5346414f: "afs",
	0x6b414653: "afs",
	0x73757245: "coda",
	0x0bd00bd0: "lustre",
	0x00c36400: "ceph",
	0x01021997: "9p",
	0x65735546: "fuse", // sshfs, gluster and so on; a local one loses little by being listed
	0x47504653: "gpfs",
	0x19830326: "beegfs",
	0xaad7aaea: "panfs",
}

// OnNetwork reports whether a path is on a network file system, where neither
// locks nor SQLite's shared memory can be trusted.
func OnNetwork(path string) (bool, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return false, err
	}
	_, remote := networkFS[uint32(fs.Type)]
	return remote, nil
}

//go:build berthfault

package site

// Tests cut the power of a disk that is a FUSE file system in memory.
func init() { delete(networkFS, 0x65735546) }

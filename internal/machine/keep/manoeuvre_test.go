package keep

import (
	"os"
	"syscall"
	"testing"
)

// TestWhatAProcessHasOfItsOwnIsMeasured: what a driver saves is found there.
func TestWhatAProcessHasOfItsOwnIsMeasured(t *testing.T) {
	own := []Process{{PID: os.Getpid()}}
	before := anonymous(own)
	const size = 64 << 20
	block, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(block)
	for i := 0; i < size; i += os.Getpagesize() {
		block[i] = 1
	}
	if grew := anonymous(own) - before; grew < size*3/4 || grew > 4*size {
		t.Errorf("after %d bytes it has %d more", size, grew)
	}
	if got := anonymous([]Process{{PID: 1 << 30}}); got != 0 {
		t.Errorf("a process that is gone has %d bytes", got)
	}
}

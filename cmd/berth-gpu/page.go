//go:build cgo

package main

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

const (
	pageDescriptor = 3
	pageIdle       = 0
	pageSystem     = 0xffffffff // a call that is not about one card
	pageBytes      = 4
)

// page shows which card NVML is being called about, in case the answer never
// comes.
type page struct{ word *uint32 }

// openPage maps the page that berth passes. When started by hand, there is
// none, and the word is private. The descriptor may be any file that a shell
// left open, so it must be memory without a name.
func openPage() page {
	private := page{word: new(uint32)}
	var is syscall.Stat_t
	if err := syscall.Fstat(pageDescriptor, &is); err != nil {
		return private
	}
	if is.Mode&syscall.S_IFMT != syscall.S_IFREG || is.Nlink != 0 || is.Size < pageBytes {
		return private
	}
	memory, err := syscall.Mmap(pageDescriptor, 0, pageBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return private
	}
	return page{word: (*uint32)(unsafe.Pointer(&memory[0]))}
}

// about marks the following calls as being about a card, by driver index.
func (p page) about(card int) { atomic.StoreUint32(p.word, uint32(card)+1) }

// system marks them as not being about one card.
func (p page) system() { atomic.StoreUint32(p.word, pageSystem) }

// idle marks that there are none.
func (p page) idle() { atomic.StoreUint32(p.word, pageIdle) }

// now is the current word.
func (p page) now() uint32 { return atomic.LoadUint32(p.word) }

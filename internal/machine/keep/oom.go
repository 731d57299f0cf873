package keep

import (
	"bytes"
	"os"
	"syscall"
)

// oomWindow is how much of a log's end is searched: enough for a traceback of
// every rank of a large job.
const oomWindow = 64 << 10

// oomSigns are what frameworks print when a card runs out of memory, in lower
// case: they count in any case. Each is specific enough not to match an
// application's own messages about memory.
var oomSigns = [][]byte{
	[]byte("cuda out of memory"),                         // torch
	[]byte("cuda error: out of memory"),                  // torch, and CUDA's own samples
	[]byte("torch.outofmemoryerror"),                     // torch 2.5 and newer
	[]byte("torch.cuda.outofmemoryerror"),                // torch 1.13 and newer
	[]byte("hip out of memory"),                          // torch on AMD
	[]byte("resource_exhausted"),                         // JAX, XLA
	[]byte("cuda_error_out_of_memory"),                   // the driver, numba, TensorFlow
	[]byte("cudaerrormemoryallocation"),                  // the runtime, cupy
	[]byte("cupy.cuda.memory.outofmemoryerror"),          // cupy
	[]byte("outofmemoryerror: out of memory allocating"), // the same, imported by name
	[]byte("oom when allocating tensor"),                 // TensorFlow
	[]byte("resourceexhaustederror: oom when allocating"),
	[]byte("ran out of memory trying to allocate"), // TensorFlow's allocator, before it gives up
	[]byte("cudamalloc failed: out of memory"),     // llama.cpp
	[]byte("cublas_status_alloc_failed"),
	[]byte("cudnn_status_alloc_failed"),
}

// oomPairs count only together, on one line: XLA's "Failed to allocate 8.00GiB
// (8589934592B) of device memory: out of memory", llama.cpp's "failed to allocate
// CUDA0 buffer".
var oomPairs = [][2][]byte{
	{[]byte("failed to allocate"), []byte("cuda")},
	{[]byte("failed to allocate"), []byte("device memory")},
	{[]byte("failed to allocate"), []byte("bytes from device")},
	{[]byte("failed to allocate"), []byte("gpu memory")},
}

// outOfMemory reports whether the text says that a card ran out of memory.
func outOfMemory(text []byte) bool {
	text = bytes.ToLower(text)
	for _, sign := range oomSigns {
		if bytes.Contains(text, sign) {
			return true
		}
	}
	for line := range bytes.Lines(text) {
		for _, pair := range oomPairs {
			if bytes.Contains(line, pair[0]) && bytes.Contains(line, pair[1]) {
				return true
			}
		}
	}
	return false
}

// OOMText reports whether the end of a log, from that offset on, says that a
// card ran out of memory; false if the log cannot be read. It is for the
// records of supervisors that did not check themselves.
func OOMText(path string, from int64) bool {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	l := logFile{fd: int(file.Fd()), from: from, regular: true}
	return outOfMemory(l.tail(oomWindow))
}

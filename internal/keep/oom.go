package keep

import (
	"bytes"
	"os"
	"syscall"
)

// oomWindow is how much of a log's end is searched: a traceback of every rank
// of a large job fits.
const oomWindow = 64 << 10

// oomSigns are what frameworks print when a card has no memory left.
var oomSigns = [][]byte{
	[]byte("CUDA out of memory"),                         // torch
	[]byte("CUDA error: out of memory"),                  // torch, and CUDA's own samples
	[]byte("torch.OutOfMemoryError"),                     // torch 2.5 and newer
	[]byte("torch.cuda.OutOfMemoryError"),                // torch 1.13 and newer
	[]byte("HIP out of memory"),                          // torch on AMD
	[]byte("RESOURCE_EXHAUSTED: Out of memory"),          // JAX
	[]byte("RESOURCE_EXHAUSTED: Failed to allocate"),     // XLA
	[]byte("CUDA_ERROR_OUT_OF_MEMORY"),                   // the driver, numba, TensorFlow
	[]byte("cudaErrorMemoryAllocation"),                  // the runtime, cupy
	[]byte("OutOfMemoryError: Out of memory allocating"), // cupy
	[]byte("ResourceExhaustedError: OOM when allocating"),
	[]byte("OOM when allocating tensor"),       // TensorFlow
	[]byte("cudaMalloc failed: out of memory"), // llama.cpp
	[]byte("CUBLAS_STATUS_ALLOC_FAILED"),
	[]byte("CUDNN_STATUS_ALLOC_FAILED"),
}

// outOfMemory reports whether the text says that a card ran out of memory.
func outOfMemory(text []byte) bool {
	for _, sign := range oomSigns {
		if bytes.Contains(text, sign) {
			return true
		}
	}
	for line := range bytes.Lines(bytes.ToLower(text)) {
		if bytes.Contains(line, []byte("failed to allocate")) && bytes.Contains(line, []byte("cuda")) {
			return true
		}
	}
	return false
}

// OOMText reports whether the end of a log, from that offset on, says that a
// card ran out of memory. A log that cannot be read says nothing. It is for the
// records of supervisors that did not look themselves.
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

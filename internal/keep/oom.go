package keep

import (
	"bytes"
	"os"
	"syscall"
)

// oomWindow is how much of a log's end is searched: enough for a traceback of
// every rank of a large job.
const oomWindow = 64 << 10

// oomSigns are what frameworks print when a card runs out of memory. Each is
// specific enough not to match an application's own messages about memory.
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
	[]byte("cupy.cuda.memory.OutOfMemoryError"),          // cupy
	[]byte("OutOfMemoryError: Out of memory allocating"), // the same, imported by name
	[]byte("ResourceExhaustedError: OOM when allocating"),
	[]byte("OOM when allocating tensor"),           // TensorFlow
	[]byte("ran out of memory trying to allocate"), // TensorFlow's allocator, before it gives up
	[]byte("cudaMalloc failed: out of memory"),     // llama.cpp
	[]byte("CUBLAS_STATUS_ALLOC_FAILED"),
	[]byte("CUDNN_STATUS_ALLOC_FAILED"),
}

// oomPairs count only together, on one line and in any case: XLA's "Failed to
// allocate 8.00GiB (8589934592B) of device memory: out of memory", llama.cpp's
// "failed to allocate CUDA0 buffer".
var oomPairs = [][2][]byte{
	{[]byte("failed to allocate"), []byte("cuda")},
	{[]byte("failed to allocate"), []byte("device memory")},
	{[]byte("failed to allocate"), []byte("bytes from device")},
	{[]byte("failed to allocate"), []byte("gpu memory")},
	{[]byte("resource_exhausted"), []byte("out of memory")},
	{[]byte("resource_exhausted"), []byte("failed to allocate")},
}

// outOfMemory reports whether the text says that a card ran out of memory.
func outOfMemory(text []byte) bool {
	for _, sign := range oomSigns {
		if bytes.Contains(text, sign) {
			return true
		}
	}
	for line := range bytes.Lines(bytes.ToLower(text)) {
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

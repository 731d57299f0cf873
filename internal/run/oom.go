package run

import (
	"bytes"
	"io"
	"os"
)

const (
	// oomWindow is how much of a log's end is searched: a traceback of every
	// rank of a large job fits.
	oomWindow = 64 << 10
	tailBytes = 4 << 10
)

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

// OOMText reports whether the end of a log, from that offset on, says that a
// card ran out of memory. A log that cannot be read says nothing.
func OOMText(logPath string, from int64) bool {
	text := tail(logPath, from, oomWindow)
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

func logTail(logPath string, from int64) string { return string(tail(logPath, from, tailBytes)) }

// tail reads the last bytes of a file, but none before the offset. Devices and
// pipes have no end to read.
func tail(path string, from, size int64) []byte {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	if info, err = file.Stat(); err != nil {
		return nil
	}
	begin := max(from, info.Size()-size, 0)
	if begin >= info.Size() {
		return nil
	}
	text, err := io.ReadAll(io.NewSectionReader(file, begin, size))
	if err != nil {
		return nil
	}
	return text
}

package keep

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOutOfMemoryTexts(t *testing.T) {
	t.Parallel()
	rows := []struct {
		text string
		want bool
	}{
		{"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB", true},
		{"torch.OutOfMemoryError: Allocation on device", true},
		{"torch.cuda.OutOfMemoryError: x", true},
		{"RuntimeError: CUDA error: out of memory", true},
		{"jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1 bytes.", true},
		{"numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY", true},
		{"cudaErrorMemoryAllocation: out of memory", true},
		{"cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8 bytes", true},
		{"tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[1]", true},
		{"ggml: failed to allocate 100 MiB buffer of type CUDA0", true},
		{"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 136.03 GiB is free.", true},
		{"torch.AcceleratorError: CUDA error: out of memory", true},
		{"cuda.core.experimental._utils.cuda_utils.CUDAError: CUDA_ERROR_OUT_OF_MEMORY: The API call failed", true},
		{"terminate called after throwing 'thrust::system_error' what(): cudaErrorMemoryAllocation: out of memory", true},
		{"cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes (allocated so far: 0 bytes).", true},
		{"    raise cupy.cuda.memory.OutOfMemoryError", true},
		{"2026-03-14 15:09:26: W external/xla/xla/tsl/framework/bfc_allocator.cc:501] Allocator (GPU_0_bfc) ran out of memory trying to allocate 8.00GiB", true},
		{"E0314 cuda_executor.cc:1] failed to allocate 8.00GiB (8589934592 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory", true},
		{"Failed to allocate 8589934592 bytes from device: out of memory", true},
		{"XlaRuntimeError: RESOURCE_EXHAUSTED: Error loading program: out of memory", true},
		{"jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for 8.00GiB (8589934592B) on device ordinal 0", true},
		{"RESOURCE_EXHAUSTED: oom", true},
		{"cuda OUT of Memory", true},
		{"TORCH.OUTOFMEMORYERROR", true},
		{"the model was trained out of memory constraints", false},
		{"hint: if you run out of memory, lower the batch size", false},
		{"java.lang.OutOfMemoryError: Java heap space", false},
		{"OOM score adjusted", false},
		{"failed to allocate a port", false},
		{"numpy: Unable to allocate 8 GiB; host is out of memory", false},
		{"MemoryError: Unable to allocate 3 GiB for an array", false},
		{"Killed", false},
		{"bash: fork: Cannot allocate memory", false},
		{"", false},
	}
	for _, row := range rows {
		path := filepath.Join(t.TempDir(), "log")
		os.WriteFile(path, []byte("before\n"+row.text+"\nafter\n"), 0o644)
		if got := OOMText(path, 0); got != row.want {
			t.Errorf("%q: %v", row.text, got)
		}
		if OOMText(path, int64(len("before\n"+row.text))) {
			t.Errorf("%q: an earlier attempt's text counted", row.text)
		}
	}
	far := filepath.Join(t.TempDir(), "far")
	os.WriteFile(far, []byte("CUDA out of memory\n"+strings.Repeat("x", oomWindow)), 0o644)
	if OOMText(far, 0) || OOMText("/no/such/log", 0) || OOMText("/dev/zero", 0) {
		t.Error("text that is not at the end counted")
	}
}

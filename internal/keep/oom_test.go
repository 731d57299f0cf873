package keep

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOutOfMemoryTexts(t *testing.T) {
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

package modelfiles

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/internal/tests/testkit"
)

func TestWhatIsNoModelIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.Symlink("loop.gguf", at("loop.gguf")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pipe.gguf", "pipe.safetensors"} {
		if err := syscall.Mkfifo(at(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/dev/zero", at("zero.gguf")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"shards", "itself", "bin", "configpipe"} {
		if err := os.Mkdir(at(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Write(t, at("shards/"+indexFile), `{"weight_map":{"a":"gone.safetensors"}}`)
	testkit.Write(t, at("itself/"+indexFile), `{"weight_map":{"a":"`+indexFile+`"}}`)
	testkit.Write(t, at("bin/pytorch_model.bin"), "x")
	if err := syscall.Mkfifo(at("configpipe/config.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, says := range map[string]string{
		"loop.gguf": "too many levels of symbolic links", "pipe.gguf": "found a pipe", "pipe.safetensors": "found a pipe", "zero.gguf": "found a device",
		"shards": "gone.safetensors: no such file", "itself": "same directory", "bin": "pickle", "configpipe": "found a pipe", "none": "no such file",
	} {
		if m, err := Read(at(name)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %+v %v", name, m, err)
		}
	}
}

func TestAPathHasItsSettingsAfterCommas(t *testing.T) {
	t.Parallel()
	path, use, err := cutUse("a,b/m,context=10,batch=2,dtype=bf16,train=lora,rank=4,checkpointing")
	if err != nil || path != "a,b/m" || use.Context != 10 || use.Batch != 2 || use.DType != "bf16" || use.Train != "lora" || use.Rank != 4 || !use.Recompute {
		t.Errorf("%q %+v %v", path, use, err)
	}
	for value, says := range map[string]string{"m,batch=0": "above 0", "m,contxt=1": "did you mean context", "": "no path", "m,checkpointing=no": "checkpointing"} {
		if _, _, err := cutUse(value); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", value, err)
		}
	}
}

package gpu

import (
	"bytes"
	"io"
	"testing"
)

func TestWhatAProgramPrintsWithoutEndIsBounded(t *testing.T) {
	var out boundedBuffer
	n, err := io.Copy(&out, io.LimitReader(zeros{}, 4*maxSMIOutput))
	if err != nil || n != 4*maxSMIOutput {
		t.Errorf("it took %d bytes: %v", n, err)
	}
	if got := len(out.Bytes()); got != maxSMIOutput {
		t.Errorf("it kept %d bytes, at most %d are wanted", got, maxSMIOutput)
	}
	if !bytes.HasPrefix(out.Bytes(), []byte{0, 0}) {
		t.Error("it kept something else")
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

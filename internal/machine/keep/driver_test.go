package keep

import (
	"syscall"
	"testing"
	"time"
)

// TestTheDriverProgramEndsWithItsSupervisor: the kernel closes its input, which
// nobody else holds open, the program itself least of all.
func TestTheDriverProgramEndsWithItsSupervisor(t *testing.T) {
	t.Parallel()
	d, err := startDriver([]string{"/bin/cat"})
	if err != nil {
		t.Fatal(err)
	}
	other, err := startDriver([]string{"/bin/cat"}) // of another job, started while the first one runs
	if err != nil {
		t.Fatal(err)
	}
	defer other.kill()
	d.to.Close()
	late := time.AfterFunc(time.Minute, func() { t.Error("it does not end"); d.kill() })
	defer late.Stop()
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(d.self.PID, &status, 0, nil); err != nil || status.ExitStatus() != 0 {
		t.Errorf("it ended with %d, %v", status.ExitStatus(), err)
	}
}

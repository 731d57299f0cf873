package keep

import (
	"strconv"
	"strings"
	"syscall"
)

// signalNames are the usual names, without SIG.
var signalNames = map[int]string{
	1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE",
	9: "KILL", 10: "USR1", 11: "SEGV", 12: "USR2", 13: "PIPE", 14: "ALRM", 15: "TERM",
	16: "STKFLT", 17: "CHLD", 18: "CONT", 19: "STOP", 20: "TSTP", 21: "TTIN", 22: "TTOU",
	23: "URG", 24: "XCPU", 25: "XFSZ", 26: "VTALRM", 27: "PROF", 28: "WINCH", 29: "IO",
	30: "PWR", 31: "SYS",
}

// lastSignal is the highest signal number of the kernel.
const lastSignal = 64

// SignalName is the signal's name, such as "TERM", or its number if it has
// none.
func SignalName(n int) string {
	if name, ok := signalNames[n]; ok {
		return name
	}
	return strconv.Itoa(n)
}

// SignalNumber reads a name ("USR1", "SIGUSR1", "usr1") or a number.
func SignalNumber(name string) (int, bool) {
	name = strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(name)), "SIG")
	if n, err := strconv.Atoi(name); err == nil {
		return n, n >= 1 && n <= lastSignal
	}
	for n, known := range signalNames {
		if known == name {
			return n, true
		}
	}
	return 0, false
}

const (
	sigTERM = int(syscall.SIGTERM)
	sigKILL = int(syscall.SIGKILL)
	sigCONT = int(syscall.SIGCONT)
	sigSTOP = int(syscall.SIGSTOP)
)

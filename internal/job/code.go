package job

import (
	"math/bits"
	"strconv"
	"strings"
)

// A code is a job number as eight letters and digits, for users whose tools name
// jobs like that. Numbers are spread over all codes, so that two jobs of one day
// look different; the first character is a letter, so that a code is never taken
// for a number. Codes are computed, not stored.
const (
	codeSigns  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	codeLength = 8
	codeFirst  = 26                                           // characters that a code may begin with
	codeCount  = codeFirst * 36 * 36 * 36 * 36 * 36 * 36 * 36 // all codes there are

	// codeSpread has no factor in common with codeCount, so multiplying by it
	// loses nothing; codeGather reverses it.
	codeSpread = 1_259_263_207_549
	codeShift  = 734_981_302_117
)

var codeGather = inverse(codeSpread, codeCount)

// Code is a job's id as a code. A task of an array keeps its index: K3ZX81QA_4.
// A number that is too large for a code stays as it is.
func Code(id string) string {
	number, index, isTask := strings.Cut(id, "_")
	n, err := strconv.ParseUint(number, 10, 63)
	if err != nil || n >= codeCount {
		return id
	}
	n = (times(n, codeSpread, codeCount) + codeShift) % codeCount
	var text [codeLength]byte
	for i := codeLength - 1; i > 0; i-- {
		text[i], n = codeSigns[n%36], n/36
	}
	text[0] = codeSigns[n]
	if isTask {
		return string(text[:]) + "_" + index
	}
	return string(text[:])
}

// FromCode is the id for a code, in upper or lower case.
func FromCode(word string) (id string, ok bool) {
	code, index, isTask := strings.Cut(strings.ToUpper(word), "_")
	if len(code) != codeLength || isTask && (index == "" || strings.Trim(index, "0123456789") != "") {
		return "", false
	}
	var n uint64
	for i := range codeLength {
		sign := strings.IndexByte(codeSigns, code[i])
		if sign < 0 || i == 0 && sign >= codeFirst {
			return "", false
		}
		n = n*36 + uint64(sign)
	}
	n = times((n+codeCount-codeShift)%codeCount, codeGather, codeCount)
	id = strconv.FormatUint(n, 10)
	if isTask {
		id += "_" + index
	}
	return id, true
}

// times is a·b modulo m, for factors below m.
func times(a, b, m uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return bits.Rem64(high, low, m)
}

// inverse is what undoes a multiplication by a modulo m.
func inverse(a, m int64) uint64 {
	x, next := int64(0), int64(1)
	for r, s := m, a; s != 0; {
		quotient := r / s
		r, s = s, r-quotient*s
		x, next = next, x-quotient*next
	}
	return uint64((x%m + m) % m)
}

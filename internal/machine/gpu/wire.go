package gpu

import "time"

// This file is the contract between berth and its helper berth-gpu: one JSON
// object per line, requests on the helper's standard input, replies on its
// standard output, in the order of the requests. The helper calls NVML and may
// hang or die in it at any moment; that costs only a sample.
//
// Descriptor 3, if open, is a page of shared memory. Before the helper calls
// NVML about a card it writes the card's driver index + 1 at offset 0, as a
// 32-bit number in native byte order, and 0 when it is done; 0xffffffff means a
// call that is not about one card. So berth knows which card does not answer.

// HelperProtocol is the version that both sides must share.
const HelperProtocol = 1

// The requests.
const (
	HelperHello  = "hello"  // → Hello; sent first
	HelperSample = "sample" // → Sample
	HelperLimit  = "limit"  // Limit → an empty reply
)

// HelperRequest is a line to the helper. When its input ends, the helper
// closes NVML and exits.
type HelperRequest struct {
	ID   int64  `json:"id"`
	Do   string `json:"do"`
	Skip []int  `json:"skip,omitempty"` // sample: skip these cards, by driver index
	// Watch makes the helper read the memory of all cards this often, until the
	// next request or for WatchFor. Short peaks appear as Process.PeakMiB in
	// the next sample.
	Watch    time.Duration `json:"watch,omitempty"`
	WatchFor time.Duration `json:"watch_for,omitempty"`
	Limit    *MemoryLimit  `json:"limit,omitempty"`
}

// HelperReply is a line from the helper.
type HelperReply struct {
	ID     int64         `json:"id"`
	Error  string        `json:"error,omitempty"`
	NoLib  bool          `json:"no_library,omitempty"` // beside Error: the driver's library is not installed
	Hello  *HelperHi     `json:"hello,omitempty"`
	Sample *Sample       `json:"sample,omitempty"`
	CPU    time.Duration `json:"cpu,omitempty"` // processor time used by the helper so far
}

// HelperHi describes a helper and its driver. Its devices have driver indices
// only: berth numbers them.
type HelperHi struct {
	Protocol int   `json:"protocol"`
	Facts    Facts `json:"facts"`
}

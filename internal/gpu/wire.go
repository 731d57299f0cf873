package gpu

import "time"

// This file is the contract between berth and its helper berth-gpu: one JSON
// object a line, requests on the helper's standard input, replies on its
// standard output, in the order of the requests. The helper holds NVML; it may
// hang or die in it at any moment, and nothing but a sample is lost.
//
// Descriptor 3, where it is open, is a page of shared memory. Before the helper
// calls NVML about a card it writes the card's driver index + 1 as a 32-bit
// number of the machine's byte order at offset 0, and 0 when it is done; 0xffffffff
// stands for a call that is about no card. So whoever waits for a reply knows
// which card it is that does not answer.

// HelperProtocol is the version both sides must share.
const HelperProtocol = 1

// The requests.
const (
	HelperHello  = "hello"  // → Hello; sent first
	HelperSample = "sample" // → Sample
	HelperLimit  = "limit"  // Limit → an empty reply
)

// HelperRequest is a line to the helper. It ends when its input does, having
// let go of NVML.
type HelperRequest struct {
	ID   int64  `json:"id"`
	Do   string `json:"do"`
	Skip []int  `json:"skip,omitempty"` // sample: leave these cards alone, by driver index
	// Watch has the helper look at the memory of all cards itself, this often,
	// until the next request or for WatchFor: what is short shows up as
	// Process.PeakMiB in the sample after it.
	Watch    time.Duration `json:"watch,omitempty"`
	WatchFor time.Duration `json:"watch_for,omitempty"`
	Limit    *MemoryLimit  `json:"limit,omitempty"`
}

// HelperReply is a line from the helper.
type HelperReply struct {
	ID     int64         `json:"id"`
	Error  string        `json:"error,omitempty"`
	Hello  *HelperHi     `json:"hello,omitempty"`
	Sample *Sample       `json:"sample,omitempty"`
	CPU    time.Duration `json:"cpu,omitempty"` // processor time that the helper has used so far
}

// HelperHi is what a helper says of itself and its driver. Its devices have
// driver indices only: berth numbers them.
type HelperHi struct {
	Protocol int   `json:"protocol"`
	Facts    Facts `json:"facts"`
}

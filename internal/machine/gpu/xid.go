package gpu

import (
	"cmp"
	"strconv"
)

// xidClass is what an Xid means for its card.
type xidClass int

const (
	xidUnknown     xidClass = iota // not in the table: worth a warning only
	xidApplication                 // an application error, or a program that ended badly
	xidNote                        // the card handles it; worth knowing
	xidReset                       // the card needs a reset
	xidGone                        // the card has left the bus
	xidLink                        // an NVLink failed: jobs on one card may be fine, jobs on several may not
)

// xidMeaning is one line of the catalogue.
type xidMeaning struct {
	class xidClass
	text  string
}

// xidTable is NVIDIA's public catalogue, as far as it concerns cards in data
// centres and workstations. Application errors never take a card out of
// service: the next program finds it as good as before.
var xidTable = map[int]xidMeaning{
	0: {xidGone, "the GPU has fallen off the bus"},

	8:   {xidApplication, "a channel made no progress"},
	11:  {xidApplication, "invalid or corrupted push buffer"},
	12:  {xidApplication, "the driver could not handle an exception"},
	13:  {xidApplication, "graphics engine exception"},
	25:  {xidApplication, "invalid or illegal push buffer"},
	31:  {xidApplication, "memory page fault"},
	32:  {xidApplication, "invalid or corrupted push buffer stream"},
	37:  {xidApplication, "driver firmware error"},
	38:  {xidApplication, "driver firmware error"},
	39:  {xidApplication, "copy engine fault"},
	41:  {xidApplication, "copy engine exception"},
	42:  {xidApplication, "video processor exception"},
	43:  {xidApplication, "processing stopped after an application error"},
	44:  {xidApplication, "graphics engine fault during a context switch"},
	45:  {xidApplication, "channels removed early, after an error or a kill"},
	47:  {xidApplication, "video processor exception"},
	59:  {xidApplication, "internal micro-controller error of the video processor"},
	60:  {xidApplication, "video processor exception"},
	66:  {xidApplication, "illegal access by the driver"},
	68:  {xidApplication, "video decoder exception"},
	69:  {xidApplication, "graphics engine class error"},
	70:  {xidApplication, "copy engine exception"},
	71:  {xidApplication, "copy engine exception"},
	72:  {xidApplication, "copy engine exception"},
	75:  {xidApplication, "copy engine exception"},
	76:  {xidApplication, "copy engine exception"},
	80:  {xidApplication, "corrupted data sent to the GPU"},
	82:  {xidApplication, "JPEG decoder error"},
	83:  {xidApplication, "JPEG decoder error"},
	84:  {xidApplication, "JPEG decoder error"},
	86:  {xidApplication, "optical flow engine error"},
	94:  {xidApplication, "contained ECC error: one program lost its data"},
	109: {xidApplication, "timeout while switching contexts"},

	14:  {xidNote, "reserved"},
	24:  {xidNote, "graphics class error"},
	56:  {xidNote, "display engine error"},
	57:  {xidNote, "error in programming the video memory interface"},
	58:  {xidNote, "unstable video memory interface"},
	63:  {xidNote, "a memory row was remapped, or will be at the next reset"},
	65:  {xidNote, "video processor exception"},
	73:  {xidNote, "video encoder error"},
	81:  {xidNote, "VGA subsystem error"},
	92:  {xidNote, "many corrected ECC errors"},
	93:  {xidNote, "a protected part of the firmware could not be written"},
	96:  {xidNote, "video decoder error"},
	97:  {xidNote, "video decoder error"},
	98:  {xidNote, "video decoder error"},
	99:  {xidNote, "optical flow engine error"},
	107: {xidNote, "too many interrupts of one kind"},
	121: {xidNote, "corrected error on the chip-to-chip link"},
	154: {xidNote, "the recovery action changed"},
	156: {xidNote, "a resource was retired"},
	157: {xidNote, "a resource could not be retired"},
	160: {xidNote, "a channel was retired"},
	161: {xidNote, "a channel could not be retired"},

	46:  {xidReset, "the GPU stopped processing"},
	48:  {xidReset, "double-bit ECC error"},
	61:  {xidReset, "internal micro-controller breakpoint"},
	62:  {xidReset, "internal micro-controller halt"},
	64:  {xidReset, "a memory row could not be remapped"},
	78:  {xidReset, "the virtual GPU could not be started"},
	88:  {xidReset, "error in the memory of the video decoder"},
	95:  {xidReset, "uncontained ECC error"},
	100: {xidReset, "the scheduler's memory failed"},
	110: {xidReset, "security fault"},
	119: {xidReset, "the GPU system processor does not answer"},
	120: {xidReset, "the GPU system processor failed"},
	122: {xidReset, "access to the GPU's flash memory failed"},
	123: {xidReset, "access to the power controller failed"},
	124: {xidReset, "bad command to the power controller"},
	125: {xidReset, "the GPU's flash memory is broken"},
	136: {xidReset, "the chip-to-chip link failed in training"},
	140: {xidReset, "unrecovered ECC error"},
	143: {xidReset, "initialisation failed"},
	151: {xidReset, "a key could not be rotated"},
	155: {xidReset, "the driver's watchdog for the GPU timed out"},
	158: {xidReset, "fatal timeout"},

	79: {xidGone, "the GPU has fallen off the bus"},

	74:  {xidLink, "NVLink error"},
	137: {xidLink, "NVLink privilege error"},
	144: {xidLink, "NVLink error: SAW"},
	145: {xidLink, "NVLink error: RLW"},
	146: {xidLink, "NVLink error: TLW"},
	147: {xidLink, "NVLink error: TREX"},
	148: {xidLink, "NVLink error: NVLPW control"},
	149: {xidLink, "NVLink error: NETIR"},
	150: {xidLink, "NVLink error: MSE"},
}

// String is the Xid with its meaning.
func (x Xid) String() string {
	meaning := xidTable[x.Code].text
	meaning = cmp.Or(meaning, "code unknown to berth")
	if x.Code == 0 {
		return meaning
	}
	return "Xid " + strconv.Itoa(x.Code) + " (" + meaning + ")"
}

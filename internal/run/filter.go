package run

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	attaching "github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"berth/internal/keep"
)

// The device files of the driver. The numbers of the cards are as old as the
// driver; the one of the capabilities is given out anew at every boot.
const (
	cardMajor = 195
	// firstControl is the first minor that is no card: 254 is for mode setting
	// and 255 for control, and without them a job has no CUDA at all.
	firstControl = 254
	capsDriver   = "nvidia-caps"
)

// maxDevices bounds a program: old kernels take 4096 instructions, and two go
// with each device.
const maxDevices = 1024

// As in the kernel's bpf.h.
const (
	deviceChar     = 2     // BPF_DEVCG_DEV_CHAR
	accessToOpen   = 2 | 4 // BPF_DEVCG_ACC_READ, BPF_DEVCG_ACC_WRITE
	offsetType     = 0     // in bpf_cgroup_dev_ctx: what is asked for, above the kind of file
	offsetMajor    = 4
	offsetMinor    = 8
	typeMask       = 0xffff
	accessShift    = 16
	flagAllowMulti = 2 // BPF_F_ALLOW_MULTI: programs of other cgroups are asked as well
)

// filterKey tells programs apart that let different devices through.
func filterKey(d *keep.Devices, capsMajor int) string {
	minors, caps := slices.Sorted(slices.Values(d.Minors)), slices.Sorted(slices.Values(d.Caps))
	return fmt.Sprint(minors, caps, capsMajor)
}

// instructions let everything through but the cards and the parts of cards
// that are not named. Making a device file opens nothing, so it stays allowed:
// the driver's own tools make those that are missing for everybody.
func instructions(d *keep.Devices, capsMajor int) (asm.Instructions, error) {
	if len(d.Minors)+len(d.Caps) > maxDevices {
		return nil, fmt.Errorf("%d devices are more than a filter holds", len(d.Minors)+len(d.Caps))
	}
	const allow, deny, caps = "allow", "deny", "caps"
	code := asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, offsetType, asm.Word),
		asm.LoadMem(asm.R4, asm.R1, offsetMajor, asm.Word),
		asm.LoadMem(asm.R5, asm.R1, offsetMinor, asm.Word),
		asm.Mov.Reg(asm.R3, asm.R2),
		asm.And.Imm(asm.R3, typeMask),
		asm.JNE.Imm(asm.R3, deviceChar, allow),
		asm.RSh.Imm(asm.R2, accessShift),
		asm.And.Imm(asm.R2, accessToOpen),
		asm.JEq.Imm(asm.R2, 0, allow),
		asm.JNE.Imm(asm.R4, cardMajor, caps),
		asm.JGE.Imm(asm.R5, firstControl, allow),
	}
	for _, minor := range d.Minors {
		code = append(code, asm.JEq.Imm(asm.R5, int32(minor), allow))
	}
	code = append(code, asm.Ja.Label(deny))
	// Without a number of their own, there are no parts of cards to keep from.
	code = append(code, asm.JNE.Imm(asm.R4, int32(capsMajor), allow).WithSymbol(caps))
	for _, minor := range d.Caps {
		code = append(code, asm.JEq.Imm(asm.R5, int32(minor), allow))
	}
	return append(code,
		asm.Mov.Imm(asm.R0, 0).WithSymbol(deny),
		asm.Return(),
		asm.Mov.Imm(asm.R0, 1).WithSymbol(allow),
		asm.Return(),
	), nil
}

// loadFilter gives the kernel the program for these devices.
func loadFilter(d *keep.Devices, capsMajor int) (*ebpf.Program, error) {
	code, err := instructions(d, capsMajor)
	if err != nil {
		return nil, err
	}
	spec := &ebpf.ProgramSpec{
		Name: "berth_devices", Type: ebpf.CGroupDevice, AttachType: ebpf.AttachCGroupDevice, License: "MIT", Instructions: code,
	}
	program, err := ebpf.NewProgram(spec)
	if !errors.Is(err, unix.EPERM) {
		return program, err
	}
	// Kernels before 5.11 count programs as locked memory, of which even root
	// has next to none. No supervisor is born with what is borrowed here.
	spawned.mu.Lock()
	defer spawned.mu.Unlock()
	var old unix.Rlimit
	most := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &most, &old) != nil {
		return nil, err
	}
	defer func() { _ = unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &old, nil) }()
	return ebpf.NewProgram(spec)
}

// attachFilter makes the program the only one of berth's on the cgroup. The
// old ones go when the new one is there: in between both are asked, and there
// is no moment without one. It stays when this process is gone.
func attachFilter(dir string, program *ebpf.Program) error {
	cgroup, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer cgroup.Close()
	target := int(cgroup.Fd())
	before, err := attaching.QueryPrograms(attaching.QueryOptions{Target: target, Attach: ebpf.AttachCGroupDevice})
	if err != nil {
		return err
	}
	err = attaching.RawAttachProgram(attaching.RawAttachProgramOptions{Target: target, Program: program, Attach: ebpf.AttachCGroupDevice, Flags: flagAllowMulti})
	if err != nil {
		return err
	}
	for _, old := range before.Programs {
		if err := detachFilter(target, old.ID); err != nil {
			return err
		}
	}
	return nil
}

func detachFilter(target int, id ebpf.ProgramID) error {
	program, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return err
	}
	defer func() { _ = program.Close() }()
	return attaching.RawDetachProgram(attaching.RawDetachProgramOptions{Target: target, Program: program, Attach: ebpf.AttachCGroupDevice})
}

// capsMajorIn finds the number of the capabilities' device files in the text of
// /proc/devices; -1: this driver has none.
func capsMajorIn(devices string) int {
	characters, _, _ := strings.Cut(devices, "Block devices:")
	for line := range strings.Lines(characters) {
		fields := strings.Fields(line)
		if len(fields) == 2 && fields[1] == capsDriver {
			if major, err := strconv.Atoi(fields[0]); err == nil {
				return major
			}
		}
	}
	return -1
}

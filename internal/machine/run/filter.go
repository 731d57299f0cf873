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

	"berth/internal/machine/keep"
)

// The driver's device files. The major of the cards is fixed; that of the
// capabilities is assigned at every boot.
const (
	cardMajor = 195
	// firstControl is the first minor that is not a card: 254 is for mode
	// setting and 255 for control. Without them CUDA does not work at all.
	firstControl = 254
	capsDriver   = "nvidia-caps"
)

// maxDevices bounds a program: old kernels accept 4096 instructions, and each
// device takes two.
const maxDevices = 1024

// From the kernel's bpf.h.
const (
	deviceChar     = 2     // BPF_DEVCG_DEV_CHAR
	accessToOpen   = 2 | 4 // BPF_DEVCG_ACC_READ, BPF_DEVCG_ACC_WRITE
	offsetType     = 0     // in bpf_cgroup_dev_ctx: access in the upper half, type in the lower
	offsetMajor    = 4
	offsetMinor    = 8
	typeMask       = 0xffff
	accessShift    = 16
	flagAllowMulti = 2 // BPF_F_ALLOW_MULTI: programs of other cgroups run as well
)

// filterKey identifies the program for these devices.
func filterKey(d *keep.Devices, capsMajor int) string {
	minors, caps := slices.Sorted(slices.Values(d.Minors)), slices.Sorted(slices.Values(d.Caps))
	return fmt.Sprint(minors, caps, capsMajor)
}

// instructions allow everything except the cards and MIG parts that are not
// listed. Creating a device file opens nothing, so it stays allowed: the
// driver's own tools create missing ones for all users.
func instructions(d *keep.Devices, capsMajor int) (asm.Instructions, error) {
	if len(d.Minors)+len(d.Caps) > maxDevices {
		return nil, fmt.Errorf("expected at most %d devices, found %d", maxDevices, len(d.Minors)+len(d.Caps))
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
	// If the capabilities have no major, there are no MIG parts to hide.
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

// loadFilter loads the program for these devices into the kernel.
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
	// Kernels before 5.11 count programs as locked memory, and even root's limit
	// is small. It is raised here while no supervisor can inherit it.
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

// attachFilter makes the program berth's only one on the cgroup. The old ones
// are removed after the new one is attached, so that one always applies. It
// stays when this process ends.
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

// capsMajorIn finds the major of the capability devices in the text of
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

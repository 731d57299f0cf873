"""The CUDA driver through ctypes: memory and a kernel, without any framework.

It starts in a fraction of a second, and works wherever the driver does.
"""
import ctypes

# A kernel of one thread that looks at the clock until its time is over.
SPIN = """
.version %s
.target %s
.address_size 64
.visible .entry spin(.param .u64 nanoseconds)
{
    .reg .pred %%p;
    .reg .b64 %%rd<5>;
    ld.param.u64 %%rd1, [nanoseconds];
    mov.u64 %%rd2, %%globaltimer;
AGAIN:
    mov.u64 %%rd3, %%globaltimer;
    sub.u64 %%rd4, %%rd3, %%rd2;
    setp.lt.u64 %%p, %%rd4, %%rd1;
    @%%p bra AGAIN;
    ret;
}
"""
TARGETS = (("7.0", "sm_75"), ("6.0", "sm_50"))
MULTIPROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT


class Card:
    """The first card that this process can see."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        version = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(version))
        self.driver = "CUDA %d.%d" % (version.value // 1000, version.value % 1000 // 10)
        self.device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(self.device), 0)
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device)
        self.call("cuCtxSetCurrent", context)
        self.function = None

    def call(self, name, *args):
        code = getattr(self.cuda, name)(*args)
        if code == 0:
            return
        text = ctypes.c_char_p()
        self.cuda.cuGetErrorName(code, ctypes.byref(text))
        word = (text.value or b"CUDA error %d" % code).decode()
        what = "out of memory" if word == "CUDA_ERROR_OUT_OF_MEMORY" else "failed"
        raise RuntimeError("%s: %s: %s" % (name, word, what))

    def take(self, mib):
        """Allocates and writes memory; returns its address."""
        address = ctypes.c_uint64()
        size = ctypes.c_size_t(mib << 20)
        self.call("cuMemAlloc_v2", ctypes.byref(address), size)
        self.call("cuMemsetD8_v2", address, ctypes.c_ubyte(1), size)
        self.call("cuCtxSynchronize")
        return address

    def give(self, address):
        self.call("cuMemFree_v2", address)

    def multiprocessors(self):
        count = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(count), MULTIPROCESSORS, self.device)
        return count.value

    def load(self):
        """Compiles the kernel, for the newest target the driver takes."""
        error = None
        for target in TARGETS:
            try:
                module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
                self.call("cuModuleLoadData", ctypes.byref(module), (SPIN % target).encode())
                self.call("cuModuleGetFunction", ctypes.byref(self.function), module, b"spin")
                return
            except RuntimeError as problem:
                error = problem
        raise error

    def spin(self, seconds):
        """Starts the kernel; does not wait for it."""
        if self.function is None:
            self.load()
        nanoseconds = ctypes.c_uint64(int(seconds * 1e9))
        args = (ctypes.c_void_p * 1)(ctypes.addressof(nanoseconds))
        self.call("cuLaunchKernel", self.function, 1, 1, 1, 1, 1, 1, 0, None, args, None)

    def wait(self):
        self.call("cuCtxSynchronize")

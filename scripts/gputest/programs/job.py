"""A GPU program for the checks: takes memory on the first card it sees, holds
it, computes if asked to, and exits.

What it has to say begins with "gpu-test: " so that it can be told from what
frameworks print. It uses plain allocations only, and lives a bounded time.
"""
import argparse
import os
import subprocess
import sys
import time

LONGEST_SECONDS = 240.0
PIECE_MIB = 256


def say(*words):
    print("gpu-test:", *words, flush=True)


class Torch:
    def __init__(self):
        import torch
        self.torch = torch
        torch.zeros(1, device="cuda")

    def take(self, mib):
        piece = self.torch.empty(mib << 20, dtype=self.torch.uint8, device="cuda")
        piece.fill_(1)
        self.torch.cuda.synchronize()
        return piece

    def empty(self):
        self.torch.cuda.empty_cache()

    def compute(self):
        if not hasattr(self, "square"):
            self.square = self.torch.rand(1024, 1024, device="cuda")
        for _ in range(50):
            self.square = (self.square @ self.square).clamp(0, 1)
        self.torch.cuda.synchronize()

    def multiprocessors(self):
        return self.torch.cuda.get_device_properties(0).multi_processor_count


class Jax:
    def __init__(self):
        import jax
        import jax.numpy
        self.jax = jax
        assert jax.default_backend() in ("gpu", "cuda"), jax.default_backend()

    def take(self, mib):
        # Rows of one MiB: an index of more than 2^31 is not every version's.
        return self.jax.numpy.ones((mib, 1 << 20), dtype="uint8").block_until_ready()

    def empty(self):
        pass

    def compute(self):
        square = self.jax.numpy.ones((1024, 1024))
        for _ in range(50):
            square = self.jax.numpy.clip(square @ square, 0, 1)
        square.block_until_ready()


class Cupy:
    def __init__(self):
        import cupy
        self.cupy = cupy

    def take(self, mib):
        piece = self.cupy.ones(mib << 20, dtype="uint8")
        self.cupy.cuda.Device().synchronize()
        return piece

    def empty(self):
        self.cupy.get_default_memory_pool().free_all_blocks()

    def compute(self):
        square = self.cupy.ones((1024, 1024), dtype="float32")
        for _ in range(50):
            square = self.cupy.clip(square @ square, 0, 1)
        self.cupy.cuda.Device().synchronize()


class Cuda:
    def __init__(self):
        import cudadriver
        self.card = cudadriver.Card()

    def take(self, mib):
        return Piece(self.card, mib)

    def empty(self):
        pass

    def compute(self):
        self.card.spin(0.05)
        self.card.wait()

    def multiprocessors(self):
        return self.card.multiprocessors()


class Piece:
    def __init__(self, card, mib):
        self.card = card
        self.address = card.take(mib)

    def __del__(self):
        if hasattr(self, "address"):
            self.card.give(self.address)


FRAMEWORKS = {"torch": Torch, "jax": Jax, "cupy": Cupy, "cuda": Cuda}


def grow(framework, most):
    """Takes piece after piece until it is refused or has enough."""
    pieces, refused = [], "no"
    while len(pieces) * PIECE_MIB < most:
        try:
            pieces.append(framework.take(PIECE_MIB))
        except Exception as problem:  # each framework has an exception of its own
            refused = "yes"
            print(str(problem)[:500], flush=True)
            break
    say("grown", len(pieces) * PIECE_MIB)
    say("refused", refused)
    return pieces


def spikes(framework, count, first, step, seconds, every):
    """Takes memory for a moment, again and again, each time a little more."""
    for i in range(count):
        began = time.monotonic()
        piece = framework.take(first + i * step)
        time.sleep(seconds)
        del piece
        framework.empty()
        say("spike", i)
        time.sleep(max(0.0, began + every - time.monotonic()))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--with", dest="framework", choices=sorted(FRAMEWORKS), default="cuda")
    parser.add_argument("--mib", type=int, default=0, help="memory to take and hold")
    parser.add_argument("--hold", type=float, default=0, help="seconds to hold it")
    parser.add_argument("--compute", action="store_true", help="keep the card busy meanwhile")
    parser.add_argument("--steps", action="store_true", help="do as much work as fits in that time, however long it takes")
    parser.add_argument("--endless", action="store_true", help="hang in a kernel meanwhile (cuda)")
    parser.add_argument("--grow", type=int, default=0, help="take pieces up to this, and say how far it went")
    parser.add_argument("--spikes", type=int, default=0, help="take memory for a moment, so often")
    parser.add_argument("--first", type=int, default=2048, help="memory of the first spike")
    parser.add_argument("--step", type=int, default=64, help="and how much each is larger")
    parser.add_argument("--for", dest="seconds", type=float, default=0.2, help="how long a spike is")
    parser.add_argument("--every", type=float, default=1.3, help="seconds from spike to spike")
    parser.add_argument("--processes", type=int, default=1, help="do it in so many processes at once")
    parser.add_argument("--setsid", action="store_true", help="do it in a session of its own")
    parser.add_argument("--exit", type=int, default=0, help="how to exit")
    parser.add_argument("--ready", default="", help="also make this file when the memory is held")
    return parser.parse_args()


def several(args):
    """Runs the program again below this one, which stays to wait for it."""
    words = [w for w in sys.argv[1:] if w != "--setsid"]
    if "--processes" in words:
        at = words.index("--processes")
        del words[at:at + 2]
    children = [subprocess.Popen([sys.executable, __file__] + words, start_new_session=args.setsid, stdout=subprocess.PIPE, text=True)
                for _ in range(args.processes)]
    for child in children:
        for line in child.stdout:
            if line.startswith("gpu-test: ready"):
                break
            sys.stdout.write(line)
    say("ready", *[child.pid for child in children])
    codes = []
    for child in children:
        sys.stdout.write(child.stdout.read())
        codes.append(child.wait())
    return max(codes, key=abs)


def main():
    args = arguments()
    if args.processes > 1 or args.setsid:
        return several(args)
    framework = FRAMEWORKS[args.framework]()
    held = framework.take(args.mib) if args.mib else None
    if args.grow:
        held = grow(framework, args.grow)
    if hasattr(framework, "multiprocessors"):
        say("multiprocessors", framework.multiprocessors())
    if args.endless:
        framework.card.spin(LONGEST_SECONDS)
    if args.ready:
        open(args.ready, "w").close()
    say("ready", os.getpid())
    ends = time.monotonic() + min(args.hold, LONGEST_SECONDS)
    spikes(framework, args.spikes, args.first, args.step, args.seconds, args.every)
    if args.endless:
        framework.card.wait()
    if args.steps:
        for _ in range(round(args.hold / 0.05)):  # what one takes (cuda)
            framework.compute()
    while not args.steps and time.monotonic() < ends:
        if args.compute:
            framework.compute()
        else:
            time.sleep(0.02)
    del held
    return args.exit


if __name__ == "__main__":
    sys.exit(main())

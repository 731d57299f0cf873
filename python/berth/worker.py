"""Runs one call of a BerthExecutor, in a job: python worker.py DIRECTORY.

It is executed as a file, so it needs neither this package nor its place on the
path of the job's Python; and it imports little, because it runs once per call.
"""

import os
import sys

if __name__ == "__main__" and sys.path and os.path.realpath(sys.path[0]) == os.path.dirname(os.path.realpath(__file__)):
    del sys.path[0]  # the files of this package would hide modules of the same names

import pickle
import signal
import traceback
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple

PROTOCOL = 4  # Python 3.4 and newer


def call_file(directory: str, index: int) -> str:
    """What to call, as pickles: the path of modules, then the call."""
    return os.path.join(directory, f"{index}.call")


def result_file(directory: str, index: int) -> str:
    """What came of it: (True, value) or (False, exception, traceback)."""
    return os.path.join(directory, f"{index}.result")


def write(path: str, *parts: bytes) -> None:
    """Write a file that is never half there, also after a crash of the machine."""
    new = f"{path}.{os.getpid()}"
    with open(new, "wb") as file:
        file.writelines(parts)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def main(directory: str) -> int:
    """Run the call of this job. The exit status is 1 if it raised an exception."""
    index = int(os.environ.get("BERTH_ARRAY_INDEX", "0"))
    call, result = call_file(directory, index), result_file(directory, index)
    if os.path.exists(result):
        print(f"berth: this call has a result already: {result}", file=sys.stderr)
        return 0
    try:
        with open(call, "rb") as file:
            path = pickle.load(file)
            sys.path[:] = path + [entry for entry in sys.path if entry not in path]
            function, args, kwargs = pickle.load(file)
        _prepare_checkpoint(call, path, function, args, kwargs)
        value = function(*args, **kwargs)
    except BaseException as error:
        if isinstance(error, SystemExit) and error.code in (None, 0):
            error = RuntimeError("the function called sys.exit")
        shown = traceback.format_exc()
        print(shown, end="", file=sys.stderr, flush=True)
        write(result, _failure(error, shown))
        return 1
    try:
        done = _pickle((True, value))
    except Exception as error:
        shown = traceback.format_exc()
        print(shown, end="", file=sys.stderr, flush=True)
        write(result, _failure(TypeError(f"the result cannot be pickled: {error}"), shown))
        return 1
    write(result, done)
    return 0


def _pickle(value: object) -> bytes:
    try:
        return pickle.dumps(value, PROTOCOL)
    except Exception:
        import cloudpickle  # type: ignore[import-not-found, import-untyped, unused-ignore]
        return bytes(cloudpickle.dumps(value, PROTOCOL))


def _failure(error: BaseException, shown: str) -> bytes:
    try:
        error.__traceback__ = None
        dumped = _pickle((False, error, shown))
        pickle.loads(dumped)  # an exception with arguments of its own may not come back
        return dumped
    except Exception:
        return pickle.dumps((False, RuntimeError(f"{type(error).__qualname__}: {error}"), shown), PROTOCOL)


def _prepare_checkpoint(call: str, path: Sequence[str], function: Callable[..., Any], args: Tuple[Any, ...],
                        kwargs: Mapping[str, Any]) -> None:
    """If the function has a checkpoint method, call it on berth's warning and
    store the call that it returns: the next attempt makes that one."""
    checkpoint: Optional[Callable[..., Any]] = getattr(function, "checkpoint", None)
    name = os.environ.get("BERTH_CHECKPOINT_SIGNAL")
    if checkpoint is None or name is None:
        return
    method = checkpoint

    def save(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        following: Any = method(*args, **kwargs)
        if following is None:
            raise RuntimeError("checkpoint returned None, so the call is not made again")
        write(call, pickle.dumps(list(path), PROTOCOL), _pickle(_triple(following)))
        print("berth: the checkpoint is saved; waiting to be queued again", file=sys.stderr, flush=True)
        wait_for_the_end()

    signal.signal(getattr(signal, "SIG" + name), save)


def wait_for_the_end() -> None:
    """Wait for SIGTERM, with which berth ends this attempt at the time limit or for
    the other job, and end with the status that says that all is saved."""
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
    while True:
        signal.pause()


def _triple(following: Any) -> Tuple[Any, Tuple[Any, ...], Dict[str, Any]]:
    """The call that a checkpoint returned: a Call of berth or a
    DelayedSubmission of submitit, else a function without arguments."""
    function = getattr(following, "function", None)
    if function is None:
        return following, (), {}
    return function, tuple(following.args), dict(following.kwargs)


if __name__ == "__main__":
    status = main(sys.argv[1])
    sys.stdout.flush()
    sys.exit(status)

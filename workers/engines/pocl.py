"""What PoCL needs before its first use: a private cache folder, and a processor's name where its LLVM finds no right one.

The folder: PoCL trusts a file in its cache over the binary that it is given, so a folder shared with other processes,
or left by a dead one, can replace good code by a torn file (SIGBUS). Each process has its own, and holds a lock in
it while it lives; the next process removes the folders of dead ones.

The name: PoCL asks LLVM for the host's processor. For one that is newer than that LLVM the answer is ``generic``, which
the compiler then refuses (``unknown target CPU 'generic'``), so nothing can be built at all (pocl issue 1049). A newer AMD
processor gets an older one's name. There is no setting for it; the name is therefore put into the device's record. It must
agree with the built-in library that PoCL itself picks by feature: code for a lesser processor cannot take in that library,
and LLVM ends the process, or compiles without end (LLVM 14, ``znver3`` on a Zen 4 or 5, kernels on vectors of 16 floats).
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import os
import shutil
import stat
import struct
import tempfile
import threading
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Final

PLATFORM: Final = "Portable Computing Language"
#: Feature that decides PoCL's built-in library -> LLVM processor with the same vectors, and all flags that it may use.
_PROCESSORS: Final[tuple[tuple[str, str, frozenset[str]], ...]] = (
    ("avx512f", "skylake-avx512", frozenset({"avx2", "fma", "bmi2", "avx512bw", "avx512cd", "avx512dq", "avx512vl"})),
    ("avx2", "haswell", frozenset({"fma", "f16c", "bmi1", "bmi2", "movbe", "abm"})),
    ("avx", "sandybridge", frozenset({"popcnt", "cx16"})),
    ("sse4_1", "penryn", frozenset({"ssse3", "cx16"})),
    ("sse2", "x86-64", frozenset()),
)
#: Bytes of the device record that are searched: the two names lie about 640 bytes into it.
_RECORD: Final = 2048
#: Names that LLVM 14 gives to processors with AVX-512, too, as if they had none.
_WITHOUT_AVX512: Final = frozenset({"znver1", "znver2", "znver3"})
_PREFIX: Final = "poolrt-pocl-"


def private_cache() -> Path:
    """Make this process's own cache folder, removed when it exits, and sweep the folders of processes that died."""
    root = Path(tempfile.gettempdir())
    sweep_caches(root)
    cache = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getuid()}-", dir=root))
    lock = os.open(cache / "starting", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.rename(cache / "starting", cache / "alive")  # only now: a process that can lock this file may remove the folder
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(cache, ignore_errors=True)

    atexit.register(remove)
    return cache


def sweep_caches(root: Path | None = None) -> None:
    """Remove the folders that processes of this user have left because they were killed."""
    for folder in (root or Path(tempfile.gettempdir())).glob(f"{_PREFIX}{os.getuid()}-*"):
        _sweep(folder)


def is_wrong(name: str, flags: frozenset[str]) -> bool:
    """Return whether LLVM's name for the host does not fit its features."""
    return name == "generic" or (name in _WITHOUT_AVX512 and "avx512f" in flags)


def processor_name(flags: frozenset[str]) -> str | None:
    """Return the LLVM processor for a host's features, or None where PoCL's library needs more than they give."""
    for feature, name, needed in _PROCESSORS:
        if feature in flags:
            return name if needed <= flags else None
    return None


class ProcessorNames:
    """Holds the names that devices of this process were given: a record does not say whether it was changed before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given: dict[int, str | None] = {}

    def give(self, device: int, wrong: str, flags: frozenset[str]) -> str | None:
        """Return the name that the PoCL device at address ``device`` has now in place of a ``wrong`` one, None if none."""
        with self._lock:
            if device not in self._given:
                name = processor_name(flags)
                given = name is not None and name_processor(device, wrong, name)
                self._given[device] = name if given else None
            return self._given[device]


@lru_cache(maxsize=1)
def processor_names() -> ProcessorNames:
    """Return the names given in this process."""
    return ProcessorNames()


def name_processor(device: int, wrong: str, name: str) -> bool:
    """Give the PoCL device at address ``device`` a processor name in place of a ``wrong`` one. Return whether it was done.

    The record holds the pointers to the target triple and to the processor name side by side; unless exactly one such
    pair is found nothing is touched. Memory is read through /proc, where a wrong pointer is an error, not a fault.
    """
    try:
        memory = open("/proc/self/mem", "rb", buffering=0)  # noqa: SIM115 - closed below
    except OSError:
        return False

    def read(address: int, size: int) -> bytes:
        try:
            memory.seek(address)
            return memory.read(size)
        except (OSError, OverflowError, ValueError):
            return b""

    with memory:
        found = find_names(read(device, _RECORD), wrong, read)
    if len(found) != 1:
        return False
    libc = ctypes.CDLL(None)
    libc.strdup.restype = ctypes.c_void_p  # from malloc: the record may be freed by its owner
    ctypes.c_void_p.from_address(device + found[0]).value = libc.strdup(name.encode())
    return True


def find_names(record: bytes, name: str, read: Callable[[int, int], bytes]) -> list[int]:
    """Return the offsets in a device record of pointers to a processor's name right after one to a triple."""
    wanted = name.encode() + b"\0"
    words = struct.unpack(f"<{len(record) // 8}Q", record[: len(record) // 8 * 8])
    return [
        8 * (index + 1)
        for index, (triple, place) in enumerate(pairwise(words))
        if read(place, len(wanted)) == wanted and read(triple, 7) == b"x86_64-"
    ]


def _sweep(folder: Path) -> None:
    try:
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            return  # another user's, with a name like ours: what it holds may be anything, such as a link to a device
        lock = os.open(folder / "alive", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return  # being made or removed by another process
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        pass  # its process lives
    finally:
        os.close(lock)

"""Lets this process execute instructions on tiles that its processor lacks: `tile_emulator.c` does them when they are met.

Imports nothing of poolrt: programs that tests start import it while they load poolrt's modules.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Final

#: What a processor with tiles lists; the emulator has all of it.
TILE_FLAGS: Final = frozenset({"amx_tile", "amx_bf16", "amx_int8"})
#: The variable that names the folder of what processes of a run share, as in `tests/startup/shared_compiler.py`.
_FOLDER: Final = "KERNELS_OF_TESTS"
_SOURCE: Final = Path(__file__).with_name("tile_emulator.c")


def host_has_tiles() -> bool:
    """Return whether the kernel lists tiles for this host's processor."""
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        flags = next((line.split() for line in lines if line.startswith("flags")), [])
    return TILE_FLAGS.issubset(flags)


def can_be_emulated() -> bool:
    """Return whether this host has the instructions, or what the emulator needs."""
    return host_has_tiles() or shutil.which("gcc") is not None


@lru_cache(maxsize=1)
def emulate_tiles() -> ctypes.CDLL | None:
    """Have this process and its children by fork emulate tiles; return the emulator, None on a host that has them."""
    if host_has_tiles():
        return None
    with tempfile.TemporaryDirectory(prefix="tests-tiles-") as own:
        name = f"tiles-{sha256(_SOURCE.read_bytes()).hexdigest()}.so"
        place = Path(os.environ.get(_FOLDER) or own, name)
        if not place.exists():
            made = Path(own, name)
            options = ["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
            subprocess.run(["gcc", *options, "-o", str(made), str(_SOURCE), "-lm"], check=True)
            shared = place.with_name(f"{name}.{os.getpid()}")
            shutil.copyfile(made, shared)
            shared.rename(place)
        emulator = ctypes.CDLL(str(place))
    emulator.count_products.restype = emulator.count_unreleased.restype = ctypes.c_uint64
    if emulator.install():
        raise OSError("the signal of unknown instructions cannot be handled")
    return emulator

"""PoCL's late compiles: the code for a work-group size, compiled when a kernel is first launched with it.

A binary taken after the build has general code only, and each process that gets it compiles again at its first launches.
PoCL names that code by the local size, whether the offset is 0, and whether the grid is small. It keeps all code of a
program in a folder of its cache, and puts this folder's content into a binary. So this module reads the folder of a
program that was launched; the program is then built again, without compiling anything, for a binary that is complete.

The folder's name is a hash of source and options. Each creation appends a comment of its own to the source, so that no
file left by another build gets into a binary.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import Final

from poolrt.workers.engines.pocl import PLATFORM

#: Most launches that a binary has code for: a kernel without a local size gets new ones for nearly each global size.
MOST_LAUNCHES: Final = 64
_LAUNCH: Final = re.compile(r"[0-9]+-[0-9]+-[0-9]+(-goffs0)?(-smallgrid)?")
#: The code that each binary has.
_GENERAL: Final = "0-0-0"
#: The magic of PoCL's header, 24 bytes of hash, version, number of kernels and flags, the program's folder.
_FOLDER: Final = re.compile(rb"poclbin\0.{24}([A-Z]{2}/[A-Z]{37})\0", re.S)


def is_late(platform: str) -> bool:
    """Return whether a platform compiles at launches."""
    return platform == PLATFORM


def new_suffix() -> str:
    """Return a comment to append to a source."""
    return f"\n// {secrets.token_hex(16)}\n"


def cache_folder() -> Path:
    """Return PoCL's cache folder, by the variables that PoCL reads at its start."""
    named = os.environ.get("POCL_CACHE_DIR")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pocl" / "kcache"


def folder_name(binary: bytes) -> str:
    """Return the name of a program's folder, empty for a binary of another driver."""
    named = _FOLDER.match(binary)
    return "" if named is None else named[1].decode()


def compiled_launches(binary: bytes, cache: Path) -> tuple[str, ...]:
    """Return ``kernel/launch`` for the code of launches of a binary's program in a cache folder.

    Returns none if there is no such folder, or if a file in it is not whole.
    """
    name = folder_name(binary)
    if not name:
        return ()
    folder = cache / name
    found = []
    try:
        for kernel in sorted(folder.iterdir()):
            if not kernel.is_dir():
                continue
            for launch in sorted(kernel.iterdir()):
                if launch.name == _GENERAL:
                    continue
                if _LAUNCH.fullmatch(launch.name) is None or not _is_whole(launch / f"{kernel.name}.so"):
                    return ()
                found.append(f"{kernel.name}/{launch.name}")
    except OSError:
        return ()
    return tuple(found)


def _is_whole(library: Path) -> bool:
    """Return whether a file has all that its ELF header names: PoCL would take a torn one into the binary."""
    try:
        with open(library, "rb") as file:
            header = file.read(64)
            size = os.fstat(file.fileno()).st_size
    except OSError:
        return False
    if len(header) < 64 or not header.startswith(b"\x7fELF\2"):
        return False
    table = int.from_bytes(header[40:48], "little")
    return table + int.from_bytes(header[58:60], "little") * int.from_bytes(header[60:62], "little") <= size

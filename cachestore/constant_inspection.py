"""Look at the files of constants, and remove them: for people who ask what a node keeps."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress

from .constant_files import map_constant, size_of_constant
from .deferred_namedtuple import NamedTuple
from .errors import PathRefused
from .file_lock import try_lock
from .folders import open_file
from .ownership import check_folder


class ConstantsFound(NamedTuple):
    """The files of a folder of constants: how many, their bytes, those that processes are writing, the processes that map some.

    ``problems`` are files that no process uses: path and reason of each.
    """

    files: int = 0
    bytes: int = 0
    unfinished: int = 0
    processes: tuple[int, ...] = ()
    problems: tuple[tuple[str, str], ...] = ()


def find_constants(folder: str) -> ConstantsFound:
    """Return what is in a folder of constants; it need not exist. Changes nothing."""
    try:
        check_folder(folder)
    except PathRefused as error:
        return ConstantsFound(problems=((folder, str(error)),))
    files = total = unfinished = 0
    problems: list[tuple[str, str]] = []
    for path in _files(folder):
        reason, nbytes = _look_at(path)
        if reason:
            problems.append((path, reason))
        elif path.endswith(".part"):
            unfinished += 1
        else:
            files, total = files + 1, total + nbytes
    return ConstantsFound(files, total, unfinished, tuple(_processes(folder)), tuple(problems))


def clear_constants(folder: str) -> int:
    """Remove the files of a folder of constants, except those that are being written; return how many were removed.

    A process that maps a file keeps its bytes. Raises PathRefused if another user could change the folder.
    """
    check_folder(folder)
    removed = 0
    for path in _files(folder):
        if path.endswith(".part") and not _look_at(path)[0]:
            continue
        with suppress(OSError):
            os.unlink(path)
            removed += 1
    return removed


def _files(folder: str) -> Iterator[str]:
    for where, folders, names in os.walk(folder):
        folders.sort()
        yield from (os.path.join(where, name) for name in sorted(names))


def _look_at(path: str) -> tuple[str, int]:
    """Return what is wrong with a file, empty if nothing is, and its bytes."""
    try:
        descriptor = open_file(path, os.O_RDONLY)
    except OSError as error:
        return f"cannot be opened: {error.strerror}", 0
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            return f"belongs to user {status.st_uid}", 0
        if stat.S_IMODE(status.st_mode) & 0o022:
            return "other users can write to it", 0
        if path.endswith(".part"):
            return ("half-written by a process that has ended" if try_lock(descriptor) else ""), 0
        nbytes = size_of_constant(descriptor)
        if nbytes is None or map_constant(descriptor, os.path.basename(path), nbytes) is None:
            return "damaged: it is not what its description says", 0
        return "", status.st_size
    except (OSError, ValueError) as error:
        return f"damaged: {error}", 0
    finally:
        os.close(descriptor)


def _processes(folder: str) -> Iterator[int]:
    """Yield the processes that map a file of a folder, as far as this user may see them."""
    inside = f" {os.path.realpath(folder)}{os.sep}"
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/maps", encoding="utf-8", errors="replace") as file:
                if any(inside in line for line in file):
                    yield int(name)

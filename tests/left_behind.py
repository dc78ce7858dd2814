"""What a process that runs tests may not leave: processes, files in the temporary folder, named shared memory.

Other processes run tests at the same time, so only what belongs to this one counts. A process that it started, at any
depth, is its descendant or inherited a variable from it; its temporary files go to a folder of its own. Named memory has
no such mark: a name counts if it is new and this user's, unless a process of other tests holds it.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

#: The variable that marks every process that was started here.
MARK: Final = "SESSION_OF_TESTS"
_MEMORY: Final = Path("/dev/shm")
#: How poolrt's and multiprocessing's names of shared memory and semaphores begin.
_NAMES: Final = re.compile(r"poolrt|psm_|sem\.|mp-|pym-")
#: Files that others answer for: PoCL's folder of a process that was killed, which the next one that uses PoCL removes
#: (`workers/engines/pocl.py`), and the session that ONNX Runtime's telemetry keeps in the temporary folder.
_NOT_OURS: Final = re.compile(r"poolrt-pocl-|\.ses$")
#: How `tempfile` names files.
_TRIAL: Final = re.compile(r"[a-z0-9_]{8}")
#: Helpers of multiprocessing that stay, on purpose, for as long as the process that first needed them.
_KEPT: Final = re.compile(r"from multiprocessing\.(resource_tracker|forkserver) import main")


@contextmanager
def nothing_left_behind(seconds: float = 30.0) -> Iterator[None]:
    """Give the block a temporary folder of its own; fail at its end if anything is left that was made in it.

    What is just ending has so many seconds for that.
    """
    mine = Path(tempfile.mkdtemp(prefix="tests-"))
    before = {path.name for path in _named_memory()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(mine))
        patch.setenv(MARK, str(mine))
        patch.setattr(tempfile, "tempdir", str(mine))
        try:
            yield
            until = time.monotonic() + seconds
            while (left := _left(mine, before)) and time.monotonic() < until:
                time.sleep(0.05)
        finally:
            shutil.rmtree(mine, ignore_errors=True)
    if left:
        pytest.fail("these tests have left behind:\n" + "\n".join(left), pytrace=False)


def _left(folder: Path, before: set[str]) -> list[str]:
    """Return a line for each thing that is left; ``before`` are the names of memory that were there before."""
    processes = _processes(f"{MARK}={folder}".encode())
    held = {os.fsencode(path): path for path in _named_memory() if path.name not in before}
    for pid in living() if held else ():
        if pid not in processes and pid != os.getpid():
            for name in [name for name in held if _holds(pid, name)]:
                del held[name]
    return [
        *(f"process {pid}: {command}" for pid, command in processes.items()),
        *(f"file {path}" for path in sorted(folder.iterdir()) if not (_NOT_OURS.match(path.name) or _is_trial(path))),
        *(f"shared memory {path}" for path in held.values()),
    ]


def _is_trial(path: Path) -> bool:
    """Return whether `tempfile` made a file to try the folder, in a process that was killed before it removed it."""
    try:
        return bool(_TRIAL.fullmatch(path.name)) and path.read_bytes() in (b"", b"blat")
    except OSError:
        return False


def _named_memory() -> list[Path]:
    """Return the files of named memory that are poolrt's or multiprocessing's, and this user's."""
    found = []
    for path in _MEMORY.iterdir() if _MEMORY.is_dir() else ():
        try:
            if _NAMES.match(path.name) and path.stat().st_uid == os.getuid():
                found.append(path)
        except FileNotFoundError:
            continue
    return found


def living() -> dict[int, int]:
    """Return the processes that have not ended, each with its parent."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, parent, *_ = (
                (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            )
        except OSError:
            continue
        if state not in "ZX":
            found[int(entry.name)] = int(parent)
    return found


def _processes(mark: bytes) -> dict[int, str]:
    """Return what is left of the processes that were started here, by number, with their command lines."""
    parents, found = living(), {}
    for pid in parents:
        above = parents[pid]
        # Numbers may be given again meanwhile: then parents can go round in circles.
        for _ in parents:
            if above == os.getpid() or above not in parents:
                break
            above = parents[above]
        try:
            descends = above == os.getpid() or mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if descends and not _KEPT.search(command):
            found[pid] = command
    return found


def _holds(pid: int, name: bytes) -> bool:
    """Return whether a process has a file open or mapped."""
    place = Path(f"/proc/{pid}")
    try:
        if name in (place / "maps").read_bytes():
            return True
        return any(os.readlink(os.fsencode(descriptor)) == name for descriptor in (place / "fd").iterdir())
    except OSError:
        return False

"""Folders of files that one process of a run makes and all use: what takes seconds and is only read, such as a wheel."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.startup.shared_compiler import FOLDER


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that `make` has filled, in the first process of this run that asks for it; the others wait.

    It is removed with the folder of shared kernels, at the end of the run. After an error of `make`, which is raised, the
    next one that asks makes it.
    """
    folder = Path(os.environ[FOLDER], f"{name}.files")
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = folder.with_suffix(".new")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            make(unfinished)
            unfinished.rename(folder)
    return folder

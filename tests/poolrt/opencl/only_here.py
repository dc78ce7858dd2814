"""Refuse writes outside of some folders, before they happen: for programs of others, which tests run.

Such a program copies this file beside itself, as it has no `tests` to import. Limitation: libraries in C, and programs that
it starts, are not seen.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Any, Final

_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
#: Python's audit event -> which of its arguments are paths that it changes.
_CHANGED: Final = {
    "os.chmod": (0,), "os.chown": (0,), "os.link": (1,), "os.mkdir": (0,), "os.remove": (0,), "os.rename": (0, 1),
    "os.rmdir": (0,), "os.symlink": (1,), "os.truncate": (0,), "os.utime": (0,), "sqlite3.connect": (0,),
}  # fmt: skip


def refuse_writes_outside(*folders: str) -> None:
    """Raise PermissionError in this process from now on where it would change a file outside of the folders and of ``/dev``."""
    kept = tuple(os.path.join(os.path.realpath(folder), "") for folder in (*folders, "/dev"))

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            writes = not set(mode).isdisjoint("wax+") if isinstance(mode, str) else flags & _WRITING
            paths = [path] if writes else []
        else:
            paths = [arguments[number] for number in _CHANGED.get(event, ())]
        for each in paths:
            if isinstance(each, (str, bytes, os.PathLike)):
                full = os.path.realpath(os.fsdecode(each))
                if not os.path.join(full, "").startswith(kept):
                    raise PermissionError(errno.EACCES, "a program of a test may write into its own folder only", full)

    sys.addaudithook(refuse)

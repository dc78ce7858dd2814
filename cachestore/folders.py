"""Folders and files that only their owner can enter and read."""

from __future__ import annotations

import os


def make_folder(path: str) -> None:
    """Make a folder and its missing parents, each with mode 0700; `os.makedirs` would leave the parents open."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    except FileNotFoundError:
        parent = os.path.dirname(path)
        if not parent:
            raise
        make_folder(parent)
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            # Another process was faster. A folder that is still missing cannot be made here, as in /proc.
            return


def open_file(path: str, flags: int) -> int:
    """Return the descriptor of an open file; one that is made has mode 0600, and its folder is made where missing.

    Follows no link, and waits for no reader of a named pipe.
    """
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
        make_folder(os.path.dirname(path))
        return os.open(path, flags, 0o600)

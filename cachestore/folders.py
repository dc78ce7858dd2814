"""Make folders that only their owner can enter."""

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
            # Another process was faster. One that is missing still is in no place for folders, such as /proc.
            return

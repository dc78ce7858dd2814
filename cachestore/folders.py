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
        if not parent or os.path.isdir(parent):
            raise  # nothing is missing: this is no place for folders, such as /proc
        make_folder(parent)
        make_folder(path)

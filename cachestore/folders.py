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
        make_folder(os.path.dirname(path))
        make_folder(path)

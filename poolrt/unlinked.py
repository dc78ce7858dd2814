"""The lower floors of a checkout without symbolic links, such as an unpacked ZIP archive: they are beside this package."""

from __future__ import annotations

import os
from collections.abc import MutableSequence


def add_floors(path: MutableSequence[str]) -> None:
    """Append the checkout's folder to a package's search path, whose first folder is that of ``poolrt``.

    Raises ImportError if the folder beside it is no checkout: a lower floor is missing, and a folder ``workers`` of another
    distribution must not replace it.
    """
    root = os.path.dirname(path[0])
    parts = ("pyproject.toml", "workers/__init__.py", "cachestore/__init__.py")
    if not all(os.path.isfile(os.path.join(root, part)) for part in parts):
        raise ImportError(f"{path[0]} has no folder 'workers': a part of poolrt is missing; install poolrt again")
    path.append(root)

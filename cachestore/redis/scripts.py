"""The Lua scripts as Redis gets them: each file of `lua/` with the shared functions that its first lines ask for."""

from __future__ import annotations

import hashlib
import os
from typing import Final

from ..deferred_dataclass import dataclass

_FOLDER: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lua")


@dataclass(frozen=True, slots=True)
class Script:
    """Source and SHA-1 (Redis's name) of one script."""

    source: bytes
    sha: str


def load_script(name: str, *shared: str) -> Script:
    """Return `lua/<name>.lua` behind the shared files it needs."""
    parts = []
    for part in (*shared, name):
        with open(os.path.join(_FOLDER, f"{part}.lua"), "rb") as file:
            parts.append(file.read())
    source = b"\n".join(parts)
    return Script(source, hashlib.sha1(source, usedforsecurity=False).hexdigest())


class Scripts:
    """All scripts of the protocol."""

    def __init__(self) -> None:
        self.acquire = load_script("acquire", "clock", "life")
        self.renew = load_script("renew", "clock")
        self.publish = load_script("publish", "clock", "life", "evict")
        self.fail = load_script("fail")
        self.touch = load_script("touch", "clock", "life")
        self.remove = load_script("remove", "life", "evict")
        self.limits = load_script("limits", "life", "evict")
        self.tidy = load_script("tidy", "clock", "life", "evict")
        self.count = load_script("count", "life")

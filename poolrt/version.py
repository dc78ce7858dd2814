"""The version of this poolrt, stated once: the package's metadata is made from it."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"

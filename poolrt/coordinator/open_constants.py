"""The files of constants that a coordinator holds open for its models, so that eviction takes none from a new worker."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping, Sequence
from typing import Any, Final

from poolrt.cachestore.constant_files import ConstantFiles

#: Of the descriptors that this process may have, one in so many may be a constant's; clients and workers need the others.
_PART: Final = 2


class OpenConstants:
    """Opens files of constants; ``options`` are those of `ConstantFiles`, none if constants are not shared."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._files = ConstantFiles(**options) if options else None
        self._most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _PART

    def find(self, constants: Sequence[tuple[int, str, int]]) -> dict[int, int]:
        """Return a descriptor for each constant, given with number, name and bytes; -1 if there is no sound file."""
        found: dict[int, int] = {}
        for number, name, nbytes in constants:
            opened = None if self._files is None else self._files.open_or_write(name, nbytes)
            if opened is not None and opened >= self._most:
                os.close(opened)  # descriptors are numbered from the lowest free one
                opened = None
            found[number] = -1 if opened is None else opened
        return found

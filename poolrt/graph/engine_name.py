"""Names of engines as users write them: ``cpu``, ``opencl``, ``opencl:<index>``."""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = re.compile(r"cpu|opencl(:[0-9]{1,4})?", re.ASCII)


def require_engine(engine: object) -> str:
    """Return the name of an engine. Raises ValueError where it is none."""
    if not isinstance(engine, str) or _NAME.fullmatch(engine) is None:
        raise ValueError(f"engine: expect cpu, opencl or opencl:<index>, got {engine!r}")
    return "opencl:0" if engine == "opencl" else engine

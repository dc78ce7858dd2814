"""Names of engines as users write them: ``cpu``, ``opencl``, ``opencl:<index>``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from reprlib import repr as shorten
from typing import Any, Final

#: Engines that one graph may name.
ENGINES_LIMIT: Final = 16
#: The place of its engine in a node of the wire.
_ENGINE: Final = 7
_NAME: Final = re.compile(r"cpu|opencl(:[0-9]{1,4})?", re.ASCII)


def require_engine(engine: object) -> str:
    """Return the name of an engine. Raises ValueError for anything else."""
    if not isinstance(engine, str) or _NAME.fullmatch(engine) is None:
        text = f"engine: expect cpu, opencl or opencl:<index>, got {shorten(engine)}"
        raise ValueError(f"{text}; GPUs are opencl:<index> too: poolrt doctor lists the devices")
    return "opencl:0" if engine == "opencl" else engine


def engines_of(wire: Mapping[str, Any]) -> list[str]:
    """Return the engines that the wire form of a graph names, its own first; malformed nodes name none.

    Raises what `require_engines` raises.
    """
    nodes = wire.get("nodes")
    named = [wire.get("engine") or "cpu"]
    for node in nodes if isinstance(nodes, list) else ():
        if isinstance(node, list) and len(node) > _ENGINE and node[_ENGINE] != "":
            named.append(node[_ENGINE])
    return require_engines(named)


def require_engines(names: Iterable[object]) -> list[str]:
    """Return the names of engines, each once. Raises ValueError if one is no engine's name, or if they are too many."""
    found = list(dict.fromkeys(map(require_engine, names)))
    if len(found) > ENGINES_LIMIT:
        raise ValueError(f"engine: {len(found)} engines are named, more than {ENGINES_LIMIT}")
    return found

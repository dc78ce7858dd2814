"""Programs of OpenCL that are built once for all processes: `Program` stands in for pyopencl's.

    import poolrt.opencl
    program = poolrt.opencl.Program(context, source).build(options)

Nothing here imports pyopencl before the first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from .errors import FallbackWarning

if TYPE_CHECKING:
    from poolrt.cachestore import CacheStore

    from .program import Program

__all__ = ["FallbackWarning", "Program", "publish_launches", "stats"]

_HOMES: Final = {"Program": ".program"}


def stats(store: CacheStore | None = None) -> dict[str, int]:
    """Return the counts of this process's programs in a store (None: the environment's), one for each device.

    ``created``, ``waited``, ``files``, ``redis`` and ``memory`` say where binaries came from, ``fallbacks`` counts programs
    that pyopencl built alone, ``published`` and ``unpublished`` what `publish_launches` did.
    """
    from .binaries import binaries_of

    return binaries_of(store).counts()


def publish_launches(limit_s: float = 60.0, store: CacheStore | None = None) -> int:
    """Give other processes the code that PoCL compiled at launches of this process; return the number of programs.

    A process that exits does it too, for 5 s at most and for the store of the environment. Call it in a server after the
    first requests. Takes ``limit_s`` seconds at most, and the build of one program more. Raises nothing: ``stats`` counts
    failures.
    """
    from .binaries import binaries_of

    return binaries_of(store).publish_launches(limit_s)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

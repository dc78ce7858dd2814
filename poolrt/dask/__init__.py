"""poolrt on the workers of a Dask cluster: one cache for all of them, and whole graphs as tasks.

    client.register_plugin(poolrt.dask.PoolrtPlugin(redis_url="redis://cache.example:6379"))
    outputs = poolrt.dask.run(client, graph, batches)

Dask schedules; nothing here does. Imports no Dask before the first use.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # see `poolrt/__init__.py`
if TYPE_CHECKING:
    from typing import Any, Final

    from .errors import ClusterError, KeysDiffer, SettingsClash
    from .plugin import PoolrtPlugin
    from .report import ClusterStats, stats
    from .runs import run, stream

__all__ = ["ClusterError", "ClusterStats", "KeysDiffer", "PoolrtPlugin", "SettingsClash", "run", "stats", "stream"]

#: Name -> the module that has it.
_HOMES: Final = {
    **dict.fromkeys(("ClusterError", "KeysDiffer", "SettingsClash"), ".errors"),
    **dict.fromkeys(("ClusterStats", "stats"), ".report"),
    **dict.fromkeys(("run", "stream"), ".runs"),
    "PoolrtPlugin": ".plugin",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = getattr(import_module(_HOMES[name], __name__), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("dask", "distributed"):
            raise
        raise ModuleNotFoundError(
            f"poolrt.dask.{name} needs Dask: run pip install 'poolrt[dask]'", name=error.name
        ) from error
    globals()[name] = found
    return found

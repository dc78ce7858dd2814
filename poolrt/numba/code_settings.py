"""Numba's settings that may change generated code; a warm kernel needs to know them, and nothing else of Numba."""

from __future__ import annotations

from functools import cache
from typing import Final

#: Settings that change no generated code, where to print, to cache, and to run: parts of their names, their beginnings
#: and ends, and whole names.
_PARTS: Final = (
    *(
        "CACHE",
        "CUDA",
        "DUMP",
        "GDB",
        "THREADING",
        "SHOW_",
        "ROCM",
        "HSA",
        "DISABLE_PERF",
        "NUM_THREADS",
        "COLOR",
        "WARN",
    ),
    *("HTML", "ANNOTATE", "FULL_TRACEBACKS", "DEVELOPER", "DIFF_IR", "LLVM_PASS_TIMINGS", "HIGHLIGHT", "VERSION"),
    *("PARALLEL_DIAGNOSTICS", "TYPEINFER_FAIL", "JIT_COVERAGE"),
)
_NAMES: Final = frozenset({"DEBUG", "DISABLE_JIT"})


@cache
def changes_code(setting: str) -> bool:
    """Return whether a setting, without the prefix of its variable, may change generated code; unknown ones may."""
    _, debug, of = setting.partition("DEBUG_")
    harmless = (
        setting in _NAMES
        or setting.startswith("TRACE")
        or setting.endswith("TRACE")
        or (debug and not of.startswith("NRT"))
        or any(part in setting for part in _PARTS)
    )
    return not harmless

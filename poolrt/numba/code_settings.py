"""Numba's settings that may change generated code; a warm kernel needs to know them, and nothing else of Numba."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

#: Settings that change no generated code: where to print, to cache, and to run.
_HARMLESS: Final = (
    r"(CACHE|CUDA|DUMP|DEBUG_(?!NRT)|GDB|THREADING|SHOW_|ROCM|HSA|DISABLE_CUDA|DISABLE_PERF|ENABLE_CUDA|FORCE_CUDA)|"
    r"NUM_THREADS|COLOR|TRACE$|^TRACE|^DEBUG$|WARN|HTML|ANNOTATE|FULL_TRACEBACKS|DEVELOPER|FUNCTION_CACHE|DIFF_IR|"
    r"LLVM_PASS_TIMINGS|HIGHLIGHT|PARALLEL_DIAGNOSTICS|TYPEINFER_FAIL|JIT_COVERAGE|^DISABLE_JIT$|VERSION|PYVERSION"
)


def changes_code(setting: str) -> bool:
    """Return whether a setting, without the prefix of its variable, may change generated code; unknown ones may."""
    return not _pattern().search(setting)


@lru_cache(maxsize=1)
def _pattern() -> re.Pattern[str]:
    return re.compile(_HARMLESS)

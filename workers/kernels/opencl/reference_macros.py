"""The macros of a reference kernel: codes of data types and algorithms, and its operands.

Parameters beside those of every kernel: ``fp64``, whether the device computes in double, and ``operands``, the most
memories that the kernel takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..codes import BINARY, CELLS, DATA_TYPES, ELTWISE, POOLING, REDUCTION, STEPS
from ..spec import Value

#: Prefix of macros -> their codes.
_CODES: Final = {
    "TYPE": DATA_TYPES,
    "ELTWISE": ELTWISE,
    "BINARY": BINARY,
    "STEP": STEPS,
    "POOLING": POOLING,
    "REDUCTION": REDUCTION,
    "CELL": CELLS,
}


def reference_macros(params: Mapping[str, Value]) -> list[str]:
    """Return the macros of a reference kernel."""
    count = params["operands"]
    if not isinstance(count, int):
        raise TypeError(f"operands must be a number, got {count!r}")
    numbers = range(count)
    return [
        *(_codes(prefix, codes) for prefix, codes in _CODES.items()),
        f"#define FP64 {int(bool(params['fp64']))}",
        f"#define OPERANDS {''.join(f', MEMORY(m{i})' for i in numbers)}",
        f"#define OPERAND_LIST {', '.join(f'm{i}_base + m{i}_offset' for i in numbers)}",
    ]


def _codes(prefix: str, codes: Mapping[str, int]) -> str:
    return "\n".join(f"#define {prefix}_{name.upper()} {code}" for name, code in codes.items())

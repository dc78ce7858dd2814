"""The source text of a reference kernel: codes of types and algorithms as macros, the shared pieces, and its own file.

A generator ``reference.<operation>`` is the file of that name in the folder. Its parameters, apart from those of every
kernel: ``fp64``, whether the device computes in double, and ``operands``, how many memories the kernel takes at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..codes import BINARY, CELLS, DATA_TYPES, ELTWISE, POOLING, REDUCTION, STEPS
from ..spec import KernelSpec

#: Prefix of the generators, and the folder of the files.
REFERENCE: Final = "reference"
#: Files in front of each kernel's own.
_PIECES: Final = ("tensors", "functions", "epilogue", "windows", "rows")
#: Prefix of macros -> the codes that they stand for.
_CODES: Final = {
    "TYPE": DATA_TYPES,
    "ELTWISE": ELTWISE,
    "BINARY": BINARY,
    "STEP": STEPS,
    "POOLING": POOLING,
    "REDUCTION": REDUCTION,
    "CELL": CELLS,
}


def reference_source(spec: KernelSpec) -> str:
    """Return the whole text that is compiled for a reference kernel; it includes nothing else."""
    params = dict(spec.params)
    count = params["operands"]
    if not isinstance(count, int):
        raise TypeError(f"operands must be a number, got {count!r}")
    numbers = range(count)
    macros = [
        *(_codes(prefix, codes) for prefix, codes in _CODES.items()),
        f"#define FP64 {int(bool(params['fp64']))}",
        f"#define OPERANDS {''.join(f', MEMORY(m{i})' for i in numbers)}",
        f"#define OPERAND_LIST {', '.join(f'm{i}_base + m{i}_offset' for i in numbers)}",
    ]
    folder = Path(__file__).parent / REFERENCE
    files = [(folder / f"{name}.cl").read_text(encoding="ascii") for name in (*_PIECES, spec.name)]
    return "\n".join([*macros, *files])


def _codes(prefix: str, codes: Mapping[str, int]) -> str:
    return "\n".join(f"#define {prefix}_{name.upper()} {code}" for name, code in codes.items())

"""Signatures of kernels, read without a compiler: `void(f4[::1], f4[:,::1], f8)`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

#: Name -> NumPy's name of the type. Those of Numba and of NumPy: `f4` and `float32` are one.
_TYPES: Final = {
    **{f"f{size}": f"float{8 * size}" for size in (4, 8)},
    **{
        f"{letter}{size}": f"{name}{8 * size}"
        for letter, name in (("i", "int"), ("u", "uint"))
        for size in (1, 2, 4, 8)
    },
    **{f"float{bits}": f"float{bits}" for bits in (32, 64)},
    **{f"{name}{bits}": f"{name}{bits}" for name in ("int", "uint") for bits in (8, 16, 32, 64)},
    "bool": "bool",
    "boolean": "bool",
}
_WHOLE: Final = re.compile(r"\s*void\s*\((.*)\)\s*", re.DOTALL)
_ARGUMENT: Final = re.compile(r"\s*([a-z]+\d*)\s*(?:\[\s*((?::\s*,\s*)*)::\s*1\s*\])?\s*")
#: Splits arguments at commas outside of brackets.
_COMMA: Final = re.compile(r",(?![^\[]*\])")


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: NumPy's name of its type, and the number of dimensions of a C-contiguous array, 0 for a number."""

    dtype: str
    ndim: int

    def __str__(self) -> str:
        return self.dtype if self.ndim == 0 else f"{self.dtype}[{':,' * (self.ndim - 1)}::1]"


def parse_signature(text: str) -> tuple[Argument, ...]:
    """Return the arguments of a signature. Raises ValueError, with an example, for what is none."""
    whole = _WHOLE.fullmatch(str(text))
    if whole is None:
        raise ValueError(f"signature {text!r}: expect text such as 'void(f4[::1], f8)'; a kernel returns nothing")
    return tuple(_argument(part, text) for part in _COMMA.split(whole[1])) if whole[1].strip() else ()


def _argument(part: str, text: str) -> Argument:
    found = _ARGUMENT.fullmatch(part)
    if found is None:
        raise ValueError(
            f"signature {text!r}: argument {part.strip()!r} is neither a number such as f8 nor an array such as f4[::1] or "
            "f4[:,::1]"
        )
    dtype = _TYPES.get(found[1])
    if dtype is None:
        raise ValueError(f"signature {text!r}: type {found[1]!r} is unknown; known: {', '.join(_TYPES)}")
    return Argument(dtype, 0 if found[2] is None else found[2].count(",") + 1)

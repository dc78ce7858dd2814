"""Signatures of kernels, read without a compiler: `void(f4[::1], f4[:,::1], f8)`."""

from __future__ import annotations

from typing import Final

from poolrt.cachestore.deferred_namedtuple import NamedTuple

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


class Argument(NamedTuple):
    """One argument: NumPy's name of its type, and the number of dimensions of a C-contiguous array, 0 for a number."""

    dtype: str
    ndim: int

    def __str__(self) -> str:
        return self.dtype if self.ndim == 0 else f"{self.dtype}[{':,' * (self.ndim - 1)}::1]"


def parse_signature(text: str) -> tuple[Argument, ...]:
    """Return the arguments of a signature. Raises ValueError, with an example, for what is none."""
    # Without `re`: three patterns take half a millisecond to compile, and a process has few signatures.
    name, _, rest = str(text).strip().partition("(")
    if name.strip() != "void" or not rest.endswith(")"):
        raise ValueError(f"signature {text!r}: expect text such as 'void(f4[::1], f8)'; a kernel returns nothing")
    inner = rest[:-1]
    return tuple(_argument(part, text) for part in _split(inner)) if inner.strip() else ()


def _split(text: str) -> list[str]:
    """Split arguments at commas outside of brackets."""
    parts = [""]
    for piece in text.split(","):
        inside = "[" in parts[-1] and "]" not in parts[-1]
        if inside:
            parts[-1] += "," + piece
        else:
            parts.append(piece)
    return parts[1:]


def _argument(part: str, text: str) -> Argument:
    name, bracket, inner = part.strip().partition("[")
    name = name.rstrip()
    *axes, last = [axis.strip() for axis in inner.removesuffix("]").split(",")]
    is_array = inner.endswith("]") and last[:2] == "::" and last[2:].strip() == "1" and set(axes) <= {":"}
    if not name.isalnum() or not name.isascii() or not name[0].islower() or (bracket and not is_array):
        raise ValueError(
            f"signature {text!r}: argument {part.strip()!r} is neither a number such as f8 nor an array such as f4[::1] or "
            "f4[:,::1]"
        )
    dtype = _TYPES.get(name)
    if dtype is None:
        raise ValueError(f"signature {text!r}: type {name!r} is unknown; known: {', '.join(_TYPES)}")
    return Argument(dtype, len(axes) + 1 if bracket else 0)

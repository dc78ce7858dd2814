"""Data types by oneDNN's short names, their sizes, and the NumPy names that users write."""

from __future__ import annotations

from typing import Final

#: short name -> (bytes an element, NumPy name or None where NumPy has no such type)
_TYPES: Final[dict[str, tuple[int, str | None]]] = {
    "f64": (8, "float64"),
    "f32": (4, "float32"),
    "f16": (2, "float16"),
    "bf16": (2, None),
    "s64": (8, "int64"),
    "s32": (4, "int32"),
    "s8": (1, "int8"),
    "u8": (1, "uint8"),
    "bool": (1, "bool"),
    "u64": (8, "uint64"),
    "u32": (4, "uint32"),
    "s16": (2, "int16"),
    "u16": (2, "uint16"),
}
#: Integer type -> the least and the greatest number.
LIMITS: Final = {
    name: (-(1 << (8 * size - 1)), (1 << (8 * size - 1)) - 1) if name[0] == "s" else (0, (1 << 8 * size) - 1)
    for name, (size, _) in _TYPES.items()
    if name[0] in "su"
}
#: Integers that oneDNN has not: their sums, differences and products wrap as NumPy's do, and are exact. The results of s32, s8
#: and u8 saturate, as oneDNN's do.
WRAPPING: Final = ("s64", "u64", "u32", "s16", "u16")
#: What users call a type -> short name. ``bfloat16`` is the name that libraries beside NumPy give theirs.
_BY_NAME: Final = {name: short for short, (_, name) in _TYPES.items() if name} | {"bfloat16": "bf16"}
_NAMES: Final = {short: name for name, short in _BY_NAME.items()}


def data_type(name: object) -> str:
    """Return the short name of a data type given by short name, by NumPy's or ``bfloat16``, or as a NumPy dtype.

    Raises ValueError naming the types that exist.
    """
    text = str(getattr(name, "name", name))
    if text in _TYPES:
        return text
    if text in _BY_NAME:
        return _BY_NAME[text]
    raise ValueError(f"unknown data type {text!r}; known: {', '.join(_TYPES)}")


def type_name(dtype: str) -> str:
    """Return what users call a data type: NumPy's name, or ``bfloat16``."""
    return _NAMES[dtype]


def item_size(dtype: str) -> int:
    """Return the bytes of one element."""
    return _TYPES[dtype][0]


def numpy_name(dtype: str) -> str:
    """Return the NumPy name of a data type; raise ValueError where NumPy has none."""
    name = _TYPES[dtype][1]
    if name is None:
        raise ValueError(f"data type {dtype} has no NumPy equivalent")
    return name

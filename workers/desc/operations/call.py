"""Call: one launch of a kernel that a user has written, with its code in the descriptor."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import ClassVar, Final

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import MOST_OF_CALL, multiple_dst, multiple_src
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, require

#: Bytes of a kernel's code, and characters of one piece of it: texts of messages are bounded.
MOST_CODE: Final = 1 << 20
PIECE: Final = 4000
#: Arguments of a kernel, sizes included, and characters of its name and of build options.
MOST_ARGUMENTS: Final = 8192
MOST_NAME: Final = 200
MOST_OPTIONS: Final = 1000
#: The range of numbers in entries: int64.
_MOST: Final = (1 << 63) - 1
_FACTOR: Final = r"(?:0|[1-9][0-9]{0,18}|(?:src|dst)(?:0|[1-9][0-9]{0,3})\.[0-9]{1,2})"
_SIZE: Final = re.compile(rf"{_FACTOR}(?:\*{_FACTOR}){{0,15}}")
_PLACE: Final = re.compile(r"(src|dst) (0|[1-9][0-9]{0,3})")
_INTEGER: Final = re.compile(r"-[1-9][0-9]{0,18}")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Options that read no files: their content would not be in the key.
_OPTIONS: Final = re.compile(r"(?:(?:-D ?[A-Za-z_]\w*(?:=[\w.+-]*)?|-cl-[\w=.-]+|-w)(?: |$))*")


@dataclass(frozen=True, slots=True)
class Call(OpDesc):
    """Launch a kernel on row-major tensors.

    ``code`` has pieces of the base85 of a native object for the ISA level ``isa``, or of OpenCL C if ``isa`` is empty. An item
    of ``args`` is ``src 0`` or ``dst 0`` (an address), ``int`` and a size or negative integer, or ``float`` and a number. A
    *size* is a product such as ``src0.1*4``, of integers and of dimensions of sources and results. A native kernel is called
    over ``work`` items, one of OpenCL over ``global_size`` in groups of ``local_size``. Raises ValueError naming the argument.
    """

    kind: ClassVar[str] = "call"
    srcs: tuple[MemoryDesc, ...]
    dsts: tuple[MemoryDesc, ...]
    function: str
    code: tuple[str, ...]
    args: tuple[str, ...]
    isa: str = ""
    work: str = "1"
    global_size: tuple[str, ...] = ()
    local_size: tuple[int, ...] = ()
    options: str = ""

    def __post_init__(self) -> None:
        for name, several in (("srcs", self.srcs), ("dsts", self.dsts)):
            require(1 <= len(several) <= MOST_OF_CALL, name, f"expect 1 to {MOST_OF_CALL}, got {len(several)}")
        named = self.function.isprintable() and 0 < len(self.function) <= MOST_NAME
        require(named, "function", f"expect a name of 1 to {MOST_NAME} printable characters")
        pieces = all(piece.isascii() and 0 < len(piece) <= PIECE for piece in self.code)
        require(pieces and bool(self.code), "code", f"expect pieces of 1 to {PIECE} ASCII characters")
        nbytes = sum(map(len, self.code)) * 4 // 5
        require(nbytes <= MOST_CODE, "code", f"it has {nbytes} bytes, more than {MOST_CODE}")
        require(len(self.args) <= MOST_ARGUMENTS, "args", f"expect at most {MOST_ARGUMENTS}, got {len(self.args)}")
        for arg in self.args:
            self._check_argument(arg)
        self.size(self.work)
        if self.isa:
            require(not (self.global_size or self.local_size or self.options), "isa", "a native kernel has no ND-range")
        else:
            self._check_range()

    def fields(self) -> dict[str, object]:
        import hashlib

        code = hashlib.sha256("".join(self.code).encode()).hexdigest()
        # Not `super`: a dataclass with slots is another class than the one that is defined here.
        return {**OpDesc.fields(self), "code": code}

    def memories(self) -> dict[int, MemoryDesc]:
        sources = {multiple_src(i): desc for i, desc in enumerate(self.srcs)}
        return {**sources, **{multiple_dst(i): desc for i, desc in enumerate(self.dsts)}}

    def outputs(self) -> tuple[int, ...]:
        return tuple(multiple_dst(i) for i in range(len(self.dsts)))

    def size(self, text: str) -> int:
        """Return the value of a size. Raises ValueError if it is malformed or exceeds 64 bits."""
        return resolve_size(text, self.srcs, self.dsts)

    def numbers(self) -> Iterator[tuple[str, int | float]]:
        """Yield each argument as ``src`` or ``dst`` with its index, or as ``i`` or ``f`` with its value."""
        for arg in self.args:
            kind, text = arg.split(" ", 1)
            if kind == "int":
                yield "i", int(text) if text.startswith("-") else self.size(text)
            elif kind == "float":
                yield "f", float(text)
            else:
                yield kind, int(text)

    def _check_argument(self, arg: str) -> None:
        if place := _PLACE.fullmatch(arg):
            several = self.srcs if place[1] == "src" else self.dsts
            require(int(place[2]) < len(several), "args", f"{arg!r}: there are {len(several)}")
            return
        kind, _, text = arg.partition(" ")
        if kind == "int":
            if _INTEGER.fullmatch(text):
                require(int(text) >= ~_MOST, "args", f"{arg!r} exceeds 64 bits")
            else:
                self.size(text)
            return
        try:
            valid = kind == "float" and repr(float(text)) == text
        except ValueError:
            valid = False
        require(valid, "args", f"expect src, dst, int or float with a value, got {arg!r:.60}")

    def _check_range(self) -> None:
        require(bool(_IDENTIFIER.fullmatch(self.function)), "function", f"{self.function!r} is no name of OpenCL C")
        known = len(self.options) <= MOST_OPTIONS and _OPTIONS.fullmatch(self.options)
        require(bool(known), "options", f"expect -D NAME=VALUE, -cl-... and -w, got {self.options!r:.60}")
        require(1 <= len(self.global_size) <= 3, "global_size", f"expect 1 to 3 sizes, got {len(self.global_size)}")
        count = len(self.global_size)
        require(len(self.local_size) == count, "local_size", f"expect {count} sizes, got {len(self.local_size)}")
        for text, local in zip(self.global_size, self.local_size, strict=True):
            size = self.size(text)
            require(1 <= size < 1 << 32, "global_size", f"expect 1 to {(1 << 32) - 1}, got {size}")
            require(local >= 1 and size % local == 0, "local_size", f"{local} does not divide {size}")


def resolve_size(text: str, srcs: tuple[MemoryDesc, ...], dsts: tuple[MemoryDesc, ...]) -> int:
    """Return the value of a size on these tensors. Raises ValueError if it is malformed or exceeds 64 bits."""
    require(bool(_SIZE.fullmatch(text)), "size", f"expect a product such as src0.1*4, got {text!r:.60}")
    found = math.prod(_factor(factor, srcs, dsts) for factor in text.split("*"))
    require(found <= _MOST, "size", f"{text} exceeds 64 bits")
    return found


def _factor(text: str, srcs: tuple[MemoryDesc, ...], dsts: tuple[MemoryDesc, ...]) -> int:
    if text.isdigit():
        return int(text)
    number, _, axis = text[3:].partition(".")
    several = srcs if text.startswith("src") else dsts
    known = int(number) < len(several) and int(axis) < several[int(number)].ndims
    require(known, "size", f"there is no dimension {text}")
    return several[int(number)].dims[int(axis)]

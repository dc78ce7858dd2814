"""Map a native object into this process without a compiler, a linker, a temporary file or dlopen: in under a ms.

Guarantees: malformed bytes raise `ObjectError`; only the listed symbols are resolved; no page is ever both
writable and executable. Limitation: the machine code itself is not checked, so an object must come from a verified entry.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from functools import lru_cache
from typing import Final

from .elf_object import (
    CODE,
    CONSTANT,
    ENTRY_SYMBOL,
    MAX_BYTES,
    R_64,
    R_GOTPCREL,
    R_GOTPCRELX,
    R_REX_GOTPCRELX,
    RELOCATION_WIDTH,
    WRITABLE,
    ElfObject,
    ObjectError,
    Relocation,
    Symbol,
    read_object,
    require,
)
from .isa import long_moves

__all__ = [
    "ALLOWED_SYMBOLS", "ENTRY_SYMBOL", "LONG_MOVES", "NativeKernel", "ObjectError", "load_object", "long_moves_of_this_process",
]  # fmt: skip

_MATH: Final = (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh", "erf",
    "erfc", "exp", "exp10", "exp2", "expm1", "fabs", "floor", "fma", "fmax", "fmin", "fmod", "hypot", "ldexp", "lgamma",
    "log", "log10", "log1p", "log2", "nearbyint", "pow", "rint", "round", "roundeven", "sin", "sincos", "sinh", "sqrt",
    "tan", "tanh", "tgamma", "trunc",
)  # fmt: skip
#: The symbol of an int64 that says from how many bytes on `rep movsb` copies rows on this host.
LONG_MOVES: Final = "poolrt_long_moves"
#: The symbols that a kernel may leave to the C and math library, and that of this loader.
ALLOWED_SYMBOLS: Final = frozenset(
    {LONG_MOVES, "bcmp", "memcmp", "memcpy", "memmove", "memset", *_MATH, *(f"{name}f" for name in _MATH)}
)
_STUB: Final = 8  # bytes of one jump through the table of addresses
_Function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class NativeKernel:
    """One kernel mapped into this process; unmapped when this object and ``function`` are gone.

    ``address`` is the entry point, ``function`` calls it as ``i32(ret*, exc**, int64 blob[])`` with the GIL released.
    """

    __slots__ = ("__weakref__", "_mapping", "address", "function")

    def __init__(self, mapping: mmap.mmap, address: int) -> None:
        self._mapping = mapping
        self.address = address
        self.function = _Function(address)
        self.function.mapping = mapping  # type: ignore[attr-defined]  # a function kept elsewhere keeps its code


def load_object(binary: bytes) -> NativeKernel:
    """Map an object and return its kernel. Raises ObjectError, and OSError if the kernel refuses memory."""
    return _Mapping(read_object(binary)).kernel()


class _Mapping:
    """One reservation of three groups of pages: code with its stubs, constants with the addresses, writable data.

    A call of the C library goes through a stub in the code, which jumps to an address in the constants: a library may be
    further away than the 2 GiB that a call reaches.
    """

    def __init__(self, elf: ElfObject) -> None:
        self._elf = elf
        external = sorted({s.name for s in elf.symbols.values() if s.section is None})
        self._resolved = {name: _resolve(name) for name in external}
        self._places: dict[int, int] = {}
        self._slots: dict[tuple[str, int | None, int], int] = {}
        groups = []
        cursor = 0
        for access in (CODE, CONSTANT, WRITABLE):
            start = cursor
            for number, section in elf.sections.items():
                if section.access == access:
                    cursor = self._places[number] = _round_up(cursor, section.align)
                    cursor += section.size
            cursor = _round_up(cursor, 16)
            if access == CODE:
                self._stubs = {name: cursor + _STUB * i for i, name in enumerate(external)}
                cursor += _STUB * len(external)
            elif access == CONSTANT:
                self._free_slot = cursor
                cursor += 8 * len(elf.symbols)
            cursor = _round_up(cursor, mmap.PAGESIZE)
            groups.append((access, start, cursor - start))
        require(cursor <= 2 * MAX_BYTES, "it needs too much memory")
        self._groups = groups
        self._memory = mmap.mmap(-1, cursor, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))

    def kernel(self) -> NativeKernel:
        memory = self._memory
        for number, section in self._elf.sections.items():
            if section.content is not None:
                place = self._places[number]
                memory[place : place + section.size] = section.content
        for name, stub in self._stubs.items():
            slot = self._slot(Symbol(name, None, 0))
            memory[stub : stub + 6] = b"\xff\x25" + struct.pack("<i", slot - (stub + 6))  # jmp [rip + distance]
        for relocation in self._elf.relocations:
            self._relocate(relocation)
        for access, start, size in self._groups:
            if size and access != WRITABLE:
                _protect(self._base + start, size, mmap.PROT_READ | (mmap.PROT_EXEC if access == CODE else 0))
        return NativeKernel(memory, self._base + self._place(self._elf.entry))

    def _relocate(self, relocation: Relocation) -> None:
        symbol = self._elf.symbols[relocation.symbol]
        place = self._places[relocation.section] + relocation.offset
        width = RELOCATION_WIDTH[relocation.kind]
        if relocation.kind == R_64:
            value = (self._address(symbol) + relocation.addend) % (1 << 64)
        else:
            through_slot = relocation.kind in (R_GOTPCREL, R_GOTPCRELX, R_REX_GOTPCRELX)
            value = (self._slot(symbol) if through_slot else self._place(symbol)) + relocation.addend - place
            require(-(1 << 8 * width - 1) <= value < 1 << 8 * width - 1, "a relocation is out of range")
        self._memory[place : place + width] = (value % (1 << 8 * width)).to_bytes(width, "little")

    def _place(self, symbol: Symbol) -> int:
        """Return the offset of a symbol in the reservation, or of its stub if the symbol is outside."""
        if symbol.section is None:
            return self._stubs[symbol.name]
        return self._places[symbol.section] + symbol.offset

    def _address(self, symbol: Symbol) -> int:
        return self._resolved[symbol.name] if symbol.section is None else self._base + self._place(symbol)

    def _slot(self, symbol: Symbol) -> int:
        """Return the offset of the slot that holds a symbol's address in the table of addresses."""
        key = symbol.name, symbol.section, symbol.offset
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = self._free_slot
            self._free_slot += 8
            struct.pack_into("<Q", self._memory, slot, self._address(symbol))
        return slot


def _round_up(value: int, multiple: int) -> int:
    return (value + multiple - 1) // multiple * multiple


@lru_cache(maxsize=256)
def _resolve(name: str) -> int:
    if name not in ALLOWED_SYMBOLS:
        raise ObjectError(f"the object needs {name!r}, which a kernel may not call")
    if name == LONG_MOVES:
        return ctypes.addressof(long_moves_of_this_process())
    for library in (None, "libm.so.6"):
        try:
            return ctypes.cast(getattr(ctypes.CDLL(library), name), ctypes.c_void_p).value or 0
        except AttributeError:
            continue
    raise ObjectError(f"the C library of this system has no {name!r}")


@lru_cache(maxsize=1)
def long_moves_of_this_process() -> ctypes.c_int64:
    """Return the number at the symbol `LONG_MOVES`: kernels that are loaded read it at each call."""
    return ctypes.c_int64(long_moves())


def _protect(address: int, size: int, access: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), ctypes.c_int(access)):
        raise OSError(ctypes.get_errno(), "mprotect of a kernel's pages failed")

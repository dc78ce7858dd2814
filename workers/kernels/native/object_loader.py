"""Map a native object into this process without a compiler, a linker, a temporary file or dlopen.

Reads x86-64 ELF relocatable objects as `codegen` emits them: one exported function, position-independent code, no
unwind tables. Loading one takes well under a millisecond.

Guarantees: every offset and size is checked before it is used, so malformed bytes give `ObjectError`, never a crash or
an endless loop; only listed C and math symbols are resolved; no page is ever writable and executable. What the machine
code itself does is not checked: an object must come from a verified entry.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

ENTRY_SYMBOL: Final = "poolrt_entry"
_MATH: Final = (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh", "erf", "erfc",
    "exp", "exp2", "expm1", "fabs", "floor", "fma", "fmax", "fmin", "fmod", "hypot", "ldexp", "lgamma", "log", "log10",
    "log1p", "log2", "nearbyint", "pow", "rint", "round", "roundeven", "sin", "sinh", "sqrt", "tan", "tanh", "tgamma",
    "trunc",
)  # fmt: skip
#: The symbols that a kernel may leave to the C and math library.
ALLOWED_SYMBOLS: Final = frozenset(
    {"bcmp", "memcmp", "memcpy", "memmove", "memset", *_MATH, *(f"{name}f" for name in _MATH)}
)

#: Limits far above what any kernel needs; they bound the work on a malformed object.
_MAX_SECTIONS: Final = 4096
_MAX_BYTES: Final = 64 << 20

_EHDR: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SHDR: Final = struct.Struct("<IIQQQQIIQQ")
_SYM: Final = struct.Struct("<IBBHQQ")
_RELA: Final = struct.Struct("<QQq")
_SHT_PROGBITS, _SHT_SYMTAB, _SHT_STRTAB, _SHT_RELA, _SHT_NOBITS, _SHT_REL = 1, 2, 3, 4, 8, 9
_SHT_X86_64_UNWIND: Final = 0x70000001
_SHF_WRITE, _SHF_ALLOC, _SHF_EXECINSTR = 1, 2, 4
_SHF_KNOWN: Final = _SHF_WRITE | _SHF_ALLOC | _SHF_EXECINSTR | 0x10 | 0x20 | 0x40  # merge, strings, info link
_SHN_UNDEF, _SHN_LORESERVE = 0, 0xFF00
_STT_FUNC, _STB_GLOBAL = 2, 1
_R_64, _R_PC32, _R_PLT32, _R_GOTPCREL, _R_PC64, _R_GOTPCRELX, _R_REX_GOTPCRELX = 1, 2, 4, 9, 24, 41, 42
_RELOCATION_BYTES: Final = {
    _R_64: 8, _R_PC32: 4, _R_PLT32: 4, _R_GOTPCREL: 4, _R_PC64: 8, _R_GOTPCRELX: 4, _R_REX_GOTPCRELX: 4,
}  # fmt: skip
_STUB: Final = 8  # bytes of one jump through the global offset table

_Function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class ObjectError(ValueError):
    """A native object cannot be loaded. Raised by `load_object`; says what is wrong with it."""


class NativeKernel:
    """One kernel mapped into this process; unmapped when this object and ``function`` are gone.

    ``address`` is the entry point, ``function`` calls it as ``i32(ret*, exc**, int64 blob[])`` with the GIL released.
    """

    __slots__ = ("_mapping", "address", "function")

    def __init__(self, mapping: mmap.mmap, address: int) -> None:
        self._mapping = mapping
        self.address = address
        self.function = _Function(address)
        self.function.mapping = mapping  # type: ignore[attr-defined]  # a call in flight keeps its code


def load_object(binary: bytes) -> NativeKernel:
    """Map an object and return its kernel. Raises ObjectError where it is malformed, OSError where memory is refused."""
    try:
        return _Loader(binary).load()
    except struct.error as error:
        raise ObjectError(f"truncated object: {error}") from error


@dataclass(frozen=True, slots=True)
class _Section:
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int


@dataclass(frozen=True, slots=True)
class _Symbol:
    name: int
    info: int
    other: int
    section: int
    value: int
    size: int


class _Loader:
    """One loading: parse, place the sections, copy, relocate, protect."""

    def __init__(self, binary: bytes) -> None:
        self._binary = binary
        self._sections = self._read_sections()
        self._symbols, self._strings = self._read_symbols()
        self._placed: dict[int, int] = {}
        self._slots: dict[str, int] = {}
        self._externals: dict[str, int] = {}

    def load(self) -> NativeKernel:
        relocations = self._read_relocations()
        groups = self._groups()
        needed = sorted({self._name(self._symbols[s]) for *_, s, _ in relocations if not self._symbols[s].section})
        cursor, bounds = 0, []
        for flags, members in groups:
            start = cursor
            for index in members:
                section = self._sections[index]
                cursor = _round_up(cursor, max(section.align, 1))
                self._placed[index] = cursor
                cursor += section.size
            if flags == _SHF_EXECINSTR:
                stubs = cursor = _round_up(cursor, 16)
                cursor += _STUB * len(needed)
            elif flags == 0:
                table = cursor = _round_up(cursor, 8)
                cursor += 8 * len(self._symbols)
            cursor = _round_up(cursor, mmap.PAGESIZE)
            bounds.append((flags, start, cursor - start))
        _require(cursor <= _MAX_BYTES, "it wants too much memory")
        self._table, self._stubs = table, dict(zip(needed, range(stubs, cursor, _STUB), strict=False))

        memory = mmap.mmap(-1, cursor, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for index, place in self._placed.items():
            section = self._sections[index]
            if section.kind == _SHT_PROGBITS:
                memory[place : place + section.size] = self._content(section)
        for name in needed:
            self._externals[name] = _resolve(name)
            stub = self._stubs[name]
            memory[stub : stub + 2] = b"\xff\x25"  # jmp [rip + offset of the slot]
            struct.pack_into("<i", memory, stub + 2, self._slot(memory, name, self._externals[name]) - (stub + 6))
        for place, kind, symbol, addend in relocations:
            self._relocate(memory, base, place[0], place[1], kind, symbol, addend)
        for flags, start, size in bounds:
            if size and not flags & _SHF_WRITE:
                _protect(base + start, size, mmap.PROT_READ | (mmap.PROT_EXEC if flags & _SHF_EXECINSTR else 0))
        return NativeKernel(memory, base + self._entry())

    def _read_sections(self) -> list[_Section]:
        header = _EHDR.unpack_from(self._binary, 0)
        ident, kind, machine = header[:3]
        offset, entry_size, count = header[6], header[11], header[12]
        _require(ident[:7] == b"\x7fELF\x02\x01\x01", "not a 64-bit little-endian ELF file")
        _require(kind == 1 and machine == 62, "not a relocatable x86-64 object")
        _require(entry_size == _SHDR.size and 0 < count <= _MAX_SECTIONS, "its section headers are malformed")
        _require(offset + count * entry_size <= len(self._binary), "its section headers are outside of the file")
        sections = [_Section(*_SHDR.unpack_from(self._binary, offset + i * entry_size)) for i in range(count)]
        _require(sum(s.size for s in sections if s.flags & _SHF_ALLOC) <= _MAX_BYTES, "its sections are too large")
        return sections

    def _content(self, section: _Section) -> bytes:
        end = section.offset + section.size
        _require(end <= len(self._binary), "a section is outside of the file")
        return self._binary[section.offset : end]

    def _read_symbols(self) -> tuple[list[_Symbol], bytes]:
        tables = [s for s in self._sections if s.kind == _SHT_SYMTAB]
        _require(len(tables) == 1, "it must have one symbol table")
        table = tables[0]
        _require(table.entry_size == _SYM.size and table.size % _SYM.size == 0, "its symbol table is malformed")
        _require(table.link < len(self._sections), "its symbol table names no strings")
        strings = self._sections[table.link]
        _require(strings.kind == _SHT_STRTAB, "its symbol table names no strings")
        return [_Symbol(*fields) for fields in _SYM.iter_unpack(self._content(table))], self._content(strings)

    def _groups(self) -> list[tuple[int, list[int]]]:
        """Return the sections to be mapped by protection: code, read-only data, writable data."""
        groups: dict[int, list[int]] = {_SHF_EXECINSTR: [], 0: [], _SHF_WRITE: []}
        for index, section in enumerate(self._sections):
            if not section.flags & _SHF_ALLOC or section.kind == _SHT_X86_64_UNWIND:
                continue
            _require(section.kind in (_SHT_PROGBITS, _SHT_NOBITS), f"section type {section.kind:#x} is not supported")
            _require(not section.flags & ~_SHF_KNOWN, f"section flags {section.flags:#x} are not supported")
            access = section.flags & (_SHF_WRITE | _SHF_EXECINSTR)
            _require(access in groups, "a section is writable and executable")
            _require(section.align <= mmap.PAGESIZE and section.align & (section.align - 1) == 0, "bad alignment")
            groups[access].append(index)
        return list(groups.items())

    def _read_relocations(self) -> list[tuple[tuple[int, int], int, int, int]]:
        """Return ((section, offset), kind, symbol, addend) of every relocation of a mapped section, all checked."""
        found, total = [], 0
        for table in self._sections:
            _require(table.kind != _SHT_REL, "relocations without addends are not supported")
            if table.kind != _SHT_RELA:
                continue
            _require(table.info < len(self._sections), "relocations of no section")
            target = self._sections[table.info]
            if not target.flags & _SHF_ALLOC or target.kind == _SHT_X86_64_UNWIND:
                continue
            total += table.size
            _require(table.entry_size == _RELA.size and table.size % _RELA.size == 0, "a relocation table is malformed")
            _require(total <= len(self._binary), "its relocation tables overlap")
            _require(target.kind == _SHT_PROGBITS, "relocations of a section without content")
            for offset, info, addend in _RELA.iter_unpack(self._content(table)):
                kind, symbol = info & 0xFFFFFFFF, info >> 32
                _require(kind in _RELOCATION_BYTES, f"relocation type {kind} is not supported")
                _require(offset + _RELOCATION_BYTES[kind] <= target.size, "a relocation is outside of its section")
                _require(0 < symbol < len(self._symbols), "a relocation names no symbol")
                found.append(((table.info, offset), kind, symbol, addend))
        return found

    def _relocate(
        self, memory: mmap.mmap, base: int, section: int, offset: int, kind: int, symbol: int, addend: int
    ) -> None:
        place = self._placed[section] + offset
        entry = self._symbols[symbol]
        name = "" if entry.section else self._name(entry)
        if kind in (_R_GOTPCREL, _R_GOTPCRELX, _R_REX_GOTPCRELX):
            address = self._externals[name] if name else base + self._offset(entry)
            target = self._slot(memory, name or f"#{symbol}", address)
            value = target + addend - place
        elif kind == _R_64:
            address = self._externals[name] if name else base + self._offset(entry)
            struct.pack_into("<Q", memory, place, (address + addend) & (1 << 64) - 1)
            return
        else:
            value = (self._stubs[name] if name else self._offset(entry)) + addend - place
        width = _RELOCATION_BYTES[kind]
        _require(-(1 << 8 * width - 1) <= value < 1 << 8 * width - 1, "a relocation is out of range")
        memory[place : place + width] = value.to_bytes(width, "little", signed=True)

    def _slot(self, memory: mmap.mmap, key: str, address: int) -> int:
        """Return the place of a symbol's address in the global offset table."""
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = self._table + 8 * len(self._slots)
            struct.pack_into("<Q", memory, slot, address)
        return slot

    def _offset(self, symbol: _Symbol) -> int:
        """Return the place of a symbol that this object defines."""
        _require(symbol.section < _SHN_LORESERVE, "absolute and common symbols are not supported")
        _require(symbol.section in self._placed, "a symbol lies in no mapped section")
        _require(symbol.value <= self._sections[symbol.section].size, "a symbol is outside of its section")
        return self._placed[symbol.section] + symbol.value

    def _name(self, symbol: _Symbol) -> str:
        end = self._strings.find(b"\0", symbol.name) if symbol.name < len(self._strings) else -1
        _require(end >= 0, "a symbol's name is outside of the strings")
        try:
            return self._strings[symbol.name : end].decode("ascii")
        except UnicodeDecodeError as error:
            raise ObjectError("a symbol's name is not ASCII") from error

    def _entry(self) -> int:
        for symbol in self._symbols:
            if symbol.info == _STB_GLOBAL << 4 | _STT_FUNC and symbol.section and self._name(symbol) == ENTRY_SYMBOL:
                place = self._offset(symbol)
                section = self._sections[symbol.section]
                _require(bool(section.flags & _SHF_EXECINSTR), "its entry is not code")
                _require(symbol.value < section.size, "its entry is outside of the code")
                return place
        raise ObjectError(f"malformed object: it does not export {ENTRY_SYMBOL}")


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise ObjectError(f"malformed object: {reason}")


def _round_up(value: int, multiple: int) -> int:
    return (value + multiple - 1) // multiple * multiple


@lru_cache(maxsize=256)
def _resolve(name: str) -> int:
    if name not in ALLOWED_SYMBOLS:
        raise ObjectError(f"the object needs {name!r}, which a kernel may not call")
    for library in (None, "libm.so.6"):
        try:
            return ctypes.cast(getattr(ctypes.CDLL(library), name), ctypes.c_void_p).value or 0
        except AttributeError:
            continue
    raise ObjectError(f"the C library of this system has no {name!r}")


def _protect(address: int, size: int, access: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), ctypes.c_int(access)):
        raise OSError(ctypes.get_errno(), "mprotect of a kernel's pages failed")

"""Read an x86-64 ELF relocatable object, as `codegen` emits it, into checked plain data.

Guarantees: every offset, size and index is checked before it is used and the work is bounded by the length of the file,
so malformed bytes raise `ObjectError`, never a crash or an endless loop. Nothing is mapped or executed here.
"""

from __future__ import annotations

import mmap
import struct
from typing import Final

from poolrt.cachestore.deferred_namedtuple import NamedTuple

ENTRY_SYMBOL: Final = "poolrt_entry"

#: Protection of a section, in the order in which groups are placed.
CODE, CONSTANT, WRITABLE = "code", "constant", "writable"

R_64, R_PC32, R_PLT32, R_GOTPCREL, R_PC64, R_GOTPCRELX, R_REX_GOTPCRELX = 1, 2, 4, 9, 24, 41, 42
#: Relocation types that are understood -> bytes that they write.
RELOCATION_WIDTH: Final = {
    R_64: 8, R_PC32: 4, R_PLT32: 4, R_GOTPCREL: 4, R_PC64: 8, R_GOTPCRELX: 4, R_REX_GOTPCRELX: 4,
}  # fmt: skip

#: Limits far above what any kernel needs; they bound the work on a malformed object.
MAX_SECTIONS: Final = 4096
MAX_BYTES: Final = 64 << 20

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELOCATION: Final = struct.Struct("<QQq")
_PROGBITS, _SYMTAB, _STRTAB, _RELA, _NOBITS, _REL, _UNWIND = 1, 2, 3, 4, 8, 9, 0x70000001
_WRITE, _ALLOC, _EXEC = 1, 2, 4
_KNOWN_FLAGS: Final = _WRITE | _ALLOC | _EXEC | 0x10 | 0x20 | 0x40  # and mergeable, strings, info link
_ACCESS: Final = {_EXEC: CODE, 0: CONSTANT, _WRITE: WRITABLE}
_FIRST_RESERVED_SECTION: Final = 0xFF00
_GLOBAL_FUNCTION: Final = 1 << 4 | 2


class ObjectError(ValueError):
    """A native object cannot be loaded. Raised while it is read or mapped, naming what is wrong."""


class Section(NamedTuple):
    """A section to be mapped: ``content`` (None: zeros), ``size`` and ``align`` in bytes."""

    access: str
    content: bytes | None
    size: int
    align: int


class Symbol(NamedTuple):
    """The target of a relocation: an offset in a section of this object, or a name that the loader resolves."""

    name: str
    section: int | None
    offset: int


class Relocation(NamedTuple):
    """Write the address of a symbol plus ``addend`` into a section, encoded by ``kind``."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


class ElfObject(NamedTuple):
    """A checked object: sections to map by number, the symbols that relocations use, relocations and the entry."""

    sections: dict[int, Section]
    symbols: dict[int, Symbol]
    relocations: list[Relocation]
    entry: Symbol


def read_object(binary: bytes) -> ElfObject:
    """Read and check an object. Raises ObjectError naming what is wrong."""
    try:
        return _Reader(binary).read()
    except struct.error as error:
        raise ObjectError(f"malformed object: truncated ({error})") from error


class _RawSection(NamedTuple):
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

    @property
    def is_mapped(self) -> bool:
        return bool(self.flags & _ALLOC) and self.kind != _UNWIND


class _Reader:
    def __init__(self, binary: bytes) -> None:
        self._binary = binary
        self._raw = self._read_section_headers()
        self._sections = {i: self._section(raw) for i, raw in enumerate(self._raw) if raw.is_mapped}
        require(sum(s.size + s.align for s in self._sections.values()) <= MAX_BYTES, "its sections are too large")
        tables = [raw for raw in self._raw if raw.kind == _SYMTAB]
        require(len(tables) == 1, "it must have one symbol table")
        require(tables[0].link < len(self._raw), "its symbol table names no strings")
        strings = self._raw[tables[0].link]
        require(strings.kind == _STRTAB, "its symbol table names no strings")
        self._strings = self._content(strings)
        self._symbols = self._table(tables[0], _SYMBOL)

    def read(self) -> ElfObject:
        relocations = self._read_relocations()
        symbols = {number: self._symbol(number) for number in {r.symbol for r in relocations}}
        return ElfObject(self._sections, symbols, relocations, self._entry())

    def _read_section_headers(self) -> list[_RawSection]:
        header = _HEADER.unpack_from(self._binary, 0)
        ident, kind, machine = header[:3]
        offset, entry_size, count = header[6], header[11], header[12]
        require(ident[:7] == b"\x7fELF\x02\x01\x01", "not a 64-bit little-endian ELF file")
        require(kind == 1 and machine == 62, "not a relocatable x86-64 object")
        require(entry_size == _SECTION.size and 0 < count <= MAX_SECTIONS, "its section headers are malformed")
        require(offset + count * entry_size <= len(self._binary), "its section headers are outside of the file")
        return [_RawSection(*_SECTION.unpack_from(self._binary, offset + i * entry_size)) for i in range(count)]

    def _section(self, raw: _RawSection) -> Section:
        require(raw.kind in (_PROGBITS, _NOBITS), f"section type {raw.kind:#x} is not supported")
        require(not raw.flags & ~_KNOWN_FLAGS, f"section flags {raw.flags:#x} are not supported")
        access = _ACCESS.get(raw.flags & (_WRITE | _EXEC), "")
        require(bool(access), "a section is writable and executable")
        align = max(raw.align, 1)
        require(align <= mmap.PAGESIZE and align & (align - 1) == 0, f"a section is aligned to {align}")
        return Section(access, self._content(raw) if raw.kind == _PROGBITS else None, raw.size, align)

    def _content(self, raw: _RawSection) -> bytes:
        require(raw.offset + raw.size <= len(self._binary), "a section is outside of the file")
        return self._binary[raw.offset : raw.offset + raw.size]

    def _table(self, raw: _RawSection, item: struct.Struct) -> list[tuple[int, ...]]:
        require(raw.entry_size == item.size and raw.size % item.size == 0, "the items of a table have a wrong size")
        return list(item.iter_unpack(self._content(raw)))

    def _read_relocations(self) -> list[Relocation]:
        found: list[Relocation] = []
        total = 0
        for raw in self._raw:
            require(raw.kind != _REL, "relocations without addends are not supported")
            if raw.kind != _RELA or raw.info not in self._sections:
                continue
            total += raw.size
            require(total <= len(self._binary), "its relocation tables overlap")
            target = self._sections[raw.info]
            require(target.content is not None, "relocations of a section without content")
            for offset, info, addend in self._table(raw, _RELOCATION):
                kind, symbol = info & 0xFFFFFFFF, info >> 32
                require(kind in RELOCATION_WIDTH, f"relocation type {kind} is not supported")
                require(offset + RELOCATION_WIDTH[kind] <= target.size, "a relocation is outside of its section")
                found.append(Relocation(raw.info, offset, kind, symbol, addend))
        return found

    def _symbol(self, number: int) -> Symbol:
        require(0 < number < len(self._symbols), "a relocation names no symbol")
        name, _, _, section, value, _ = self._symbols[number]
        if section == 0:
            return Symbol(self._name(name), None, 0)
        require(section < _FIRST_RESERVED_SECTION, "absolute and common symbols are not supported")
        require(section in self._sections, "a symbol is in no mapped section")
        require(value <= self._sections[section].size, "a symbol is outside of its section")
        return Symbol("", section, value)

    def _name(self, offset: int) -> str:
        end = self._strings.find(b"\0", offset) if offset < len(self._strings) else -1
        require(end >= 0, "a symbol's name is outside of the strings")
        return self._strings[offset:end].decode("ascii", "backslashreplace")

    def _entry(self) -> Symbol:
        for number, (name, info, _, section, value, _) in enumerate(self._symbols):
            if info == _GLOBAL_FUNCTION and section and self._name(name) == ENTRY_SYMBOL:
                entry = self._symbol(number)
                home = self._sections[section]
                require(home.access == CODE and value < home.size, "its entry is not code")
                return entry
        raise ObjectError(f"malformed object: it does not export {ENTRY_SYMBOL}")


def require(condition: bool, reason: str) -> None:
    """Raise ObjectError with a reason unless a condition holds."""
    if not condition:
        raise ObjectError(f"malformed object: {reason}")

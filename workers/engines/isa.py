"""ISA levels: what code for a CPU is compiled for, and what this host has. Imports nothing heavy: a warm start reads it."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Final

#: ISA level -> the /proc/cpuinfo flags it needs beyond the level before it (x86-64 psABI, section 3.1.1), weakest first.
ISA_LEVELS: Final[dict[str, frozenset[str]]] = {
    "x86-64": frozenset({"sse2"}),
    "x86-64-v2": frozenset({"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"}),
    "x86-64-v3": frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}),
    "x86-64-v4": frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
}

#: Extension of a level, named as in /proc/cpuinfo -> LLVM's name of it. Only implementations that ask for one get it.
EXTENSIONS: Final[dict[str, str]] = {
    "avx_vnni": "avxvnni",
    "avx512_vnni": "avx512vnni",
    "avx512_bf16": "avx512bf16",
    "amx_bf16": "amx-bf16",
    "amx_int8": "amx-int8",
}
#: The level of an extension; the last one of others. Processors with AVX-512 have wider instructions instead of these.
_LEVELS_OF: Final = {"avx_vnni": "x86-64-v3"}
_LAST: Final = [*ISA_LEVELS][-1]

#: The setting with the strongest instructions that code is made for, the table of the settings' file that has it, and its
#: variable. Engines of a process without a pool read the variable, then the file; a pool gives its processes the variable.
_SETTING: Final = "max_cpu_isa"
_TABLE: Final = "pool"
LIMIT: Final = "POOLRT_MAX_CPU_ISA"

#: Numbers of the system call that asks for a state component, and of the component that tiles are.
_ARCH_PRCTL: Final = 158
_ARCH_REQ_XCOMP_PERM: Final = 0x1023
_TILE_DATA: Final = 18

#: The family of the first AMD processors on which `rep movsb` is never much slower than vectors, and the bytes from which on it
#: is faster there.
_ZEN_5: Final = 26
_LONG: Final = 1 << 13


def chosen_instructions(limit: str | None = None) -> tuple[str, tuple[str, ...]]:
    """Return the ISA level and the extensions that code is made for: this host's, or those that ``limit`` names.

    ``limit`` is a level and, each after a ``+``, extensions; empty: all of this host. None: the one that the environment names.
    Raises ValueError, naming the source, for a limit that is none or that this host does not have.
    """
    source, limit = _named_limit() if limit is None else (_SETTING, limit)
    if limit:
        try:
            return parse_instructions(limit)
        except ValueError:
            raise ValueError(f"{source}: expected {describe_offered()}, got {limit!r}") from None
    flags = cpu_flags()
    level = host_isa(flags)
    return level, host_extensions(flags, level)


def extensions_of(level: str) -> tuple[str, ...]:
    """Return the extensions that processors of an ISA level may have."""
    return tuple(e for e in EXTENSIONS if _LEVELS_OF.get(e, _LAST) == level)


def parse_instructions(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the ISA level and the extensions that a text names. Raises ValueError if this host does not have all of them."""
    level, *extensions = text.split("+")
    flags = cpu_flags()
    order = list(ISA_LEVELS)
    if level not in order[: order.index(host_isa(flags)) + 1]:
        raise ValueError
    if extensions and not {*extensions} <= {*host_extensions(flags, level)}:
        raise ValueError
    return level, tuple(e for e in EXTENSIONS if e in extensions)


def describe_offered() -> str:
    """Return a description of the limits that this host can have."""
    flags = cpu_flags()
    order = list(ISA_LEVELS)
    *weaker, level = order[: order.index(host_isa(flags)) + 1]
    levels = f"{', '.join(weaker)} or {level}" if weaker else level
    also = ""
    for each in (*weaker, level):
        if extensions := host_extensions(flags, each):
            also += f", {each} also with any of {', '.join(f'+{name}' for name in extensions)}"
    return f"instructions of this host ({levels}{also}) or ''"


def _named_limit() -> tuple[str, str]:
    """Return the name of the source, and the limit: of the variable, else of the file that POOLRT_CONFIG names, else none.

    Raises what `read_table` raises.
    """
    if LIMIT in os.environ:
        return LIMIT, os.environ[LIMIT]
    if not os.environ.get("POOLRT_CONFIG"):
        return LIMIT, ""
    from poolrt.cachestore.settings_file import read_table

    path, table = read_table(_TABLE)
    value = table.get(_SETTING, "")
    source = f"{path}: [{_TABLE}] {_SETTING}" if _SETTING in table else LIMIT
    if not isinstance(value, str):
        raise ValueError(f"{source}: expected {describe_offered()}, got {value!r}")
    return source, value


def host_isa(flags: frozenset[str] | None = None) -> str:
    """Return the highest ISA level whose features this host has. Raises RuntimeError on a machine that is not x86-64."""
    have = flags if flags is not None else cpu_flags()
    found = None
    for level, needed in ISA_LEVELS.items():
        if not needed <= have:
            break
        found = level
    if found is None:
        raise RuntimeError("poolrt's native kernels need an x86-64 processor; /proc/cpuinfo lists no sse2")
    return found


def host_extensions(flags: frozenset[str], level: str) -> tuple[str, ...]:
    """Return the extensions of a level that code may use on a host with ``flags``.

    Those of AMX need the system's consent, once a process.
    """
    return tuple(e for e in extensions_of(level) if e in flags and (not e.startswith("amx_") or may_use_tiles()))


@lru_cache(maxsize=1)
def may_use_tiles() -> bool:
    """Ask the system for the use of AMX's tiles in this process and its children by fork; return whether it consents.

    Linux refuses if it does not keep tiles for threads (XCR0, before Linux 5.16), or if a thread has too small a stack for
    signals.
    """
    import ctypes

    call = ctypes.CDLL(None, use_errno=True).syscall
    number, request, component = (ctypes.c_long(n) for n in (_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _TILE_DATA))
    return int(call(number, request, component)) == 0


@lru_cache(maxsize=1)
def cpu_flags() -> frozenset[str]:
    """Return the features that the kernel lists for this host's first processor."""
    return frozenset(_first_processor().get(b"flags", "").split())


def long_moves(processor: dict[bytes, str] | None = None) -> int:
    """Return the bytes from which on kernels copy rows by `rep movsb` on a processor (this host's), 2**63 - 1 for never.

    That instruction does not read the lines that it writes. On AMD's Zen 3 and 4 it may take 20 times as long as vectors
    (https://sourceware.org/bugzilla/show_bug.cgi?id=30994), so it is for those on which it was measured.
    """
    first = _first_processor() if processor is None else processor
    family = first.get(b"cpu family", "")
    measured = first.get(b"vendor_id") == "AuthenticAMD" and family.isdecimal() and int(family) >= _ZEN_5
    return _LONG if measured else 2**63 - 1


@lru_cache(maxsize=1)
def _first_processor() -> dict[bytes, str]:
    """Return what the kernel lists of this host's first processor, up to its features."""
    found = {}
    with open("/proc/cpuinfo", "rb") as lines:  # as text, it would import a codec
        for line in lines:
            name, _, value = line.partition(b":")
            found[name.strip()] = value.decode("utf-8", "replace").strip()
            if name.startswith(b"flags"):
                break
    return found

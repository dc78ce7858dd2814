"""The instructions that kernels are tested with; this host need not have them (see `lacking_instructions`)."""

from __future__ import annotations

from typing import Final, NoReturn

from poolrt.workers.engines.isa import chosen_instructions, cpu_flags, extensions_of, host_extensions
from poolrt.workers.engines.target import ISA_LEVELS, Target, host_isa

from .kernels.native.tile_emulator import TILE_FLAGS, can_be_emulated, emulate_tiles

#: The levels whose code is tested, weakest first: without FMA, with 256-bit and with 512-bit registers.
LEVELS: Final = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
#: All that a processor can have.
EVERYTHING: Final = "+".join((LEVELS[-1], *extensions_of(LEVELS[-1])))
#: The parameter of tests that compute with it.
WITH_ALL_INSTRUCTIONS: Final = "native with all instructions"


def limits() -> list[str]:
    """Return the limits of instructions below those of this host, weakest first, as the setting max_cpu_isa names them.

    Processors with an extension have those before it.
    """
    level, extensions = chosen_instructions("")
    order, found = list(ISA_LEVELS), []
    for weaker in order[: order.index(level)]:
        some = host_extensions(cpu_flags(), weaker)
        found += [weaker, "+".join((weaker, *some))][: 1 + bool(some)]
    return found + ["+".join((level, *extensions[:count])) for count in range(len(extensions))]


def of_level(level: str) -> Target:
    """Return the target of an ISA level that this host need not have: for code that is described or compiled, not run."""
    return Target("cpu", "native", (("isa", level),))


def another_level(target: Target) -> Target:
    """Return the target of the weakest ISA level that is not the one of a target."""
    return of_level(next(level for level in ISA_LEVELS if level != target.isa))


def target_of(instructions: str) -> Target:
    """Return the target of an ISA level and, each after a ``+``, extensions.

    Only kernels with vectors of 512 bits are compiled for hosts that lack them: the others name narrower registers.
    """
    level, *extensions = instructions.split("+")
    order = list(ISA_LEVELS)
    if order.index(level) > order.index(host_isa()) and (level != LEVELS[-1] or host_isa() != LEVELS[-2]):
        _skip(f"this host has only {host_isa()}")
    if TILE_FLAGS & {*extensions}:
        if not can_be_emulated():
            _skip("tiles are emulated by a program that needs gcc")
        emulate_tiles()
    device = (("isa", level), ("extensions", " ".join(extensions)))
    return Target("cpu", "native", device[: 1 + bool(extensions)])


def _skip(reason: str) -> NoReturn:
    import pytest  # processes that tests start run on levels that there are

    pytest.skip(reason)

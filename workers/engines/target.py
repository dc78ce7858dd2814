"""Targets: the machine half of a key. A CPU target is an ISA *level* that code is compiled for, not the host's name."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from poolrt.cachestore.deferred_dataclass import dataclass, field, replace

from .isa import EXTENSIONS, ISA_LEVELS, chosen_instructions, extensions_of, host_isa

__all__ = ["EXTENSIONS", "ISA_LEVELS", "Target", "cpu_target", "host_isa"]


@dataclass(frozen=True, slots=True)
class Target:
    """The machine that code is made for: engine kind, runtime kind and a device identity of named fields, stable across hosts.

    ``threads`` is the number that a program divides its work or scratch memory by; 0 if it does not depend on threads.
    """

    engine_kind: str
    runtime: str
    device: tuple[tuple[str, str], ...]
    threads: int = 0
    #: Computed once: every look-up by a descriptor hashes its target too.
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.threads < 0:
            raise ValueError(f"a target's threads must be 0 or more, got {self.threads}")
        object.__setattr__(self, "_hash", hash((self.engine_kind, self.runtime, self.device, self.threads)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        # Hashes of text differ between processes.
        return Target, (self.engine_kind, self.runtime, self.device, self.threads)

    @property
    def isa(self) -> str:
        """The ISA level of a CPU target. Raises ValueError for other kinds."""
        for name, value in self.device:
            if name == "isa":
                return value
        raise ValueError(f"a target of engine kind {self.engine_kind} has no ISA level")

    @property
    def extensions(self) -> tuple[str, ...]:
        """The extensions of a CPU target beyond its ISA level."""
        return tuple(dict(self.device).get("extensions", "").split())

    @property
    def instructions(self) -> str:
        """The instructions that code of a CPU target may use: the ISA level and, each after a ``+``, extensions."""
        return "+".join((self.isa, *self.extensions))

    def lack_of(self, extensions: tuple[str, ...]) -> str | None:
        """Return which of these extensions a CPU target lacks, as a sentence, or None.

        Those of other levels do not count, but code for one of several levels needs a target of one of them.
        """
        needed = {*extensions} & {*extensions_of(self.isa)} or {*extensions}
        return f"the host has no {', '.join(sorted(needed))}" if not needed <= {*self.extensions} else None

    def only(self, extensions: tuple[str, ...]) -> Target:
        """Return a CPU target with only these of its extensions: the target of code that uses no others."""
        if not self.extensions:
            return self
        kept = [e for e in self.extensions if e in extensions]
        return replace(self, device=_device(self.isa, kept))

    def on_threads(self, threads: int) -> Target:
        """Return this target for programs that divide by ``threads``; 0 for programs that do not depend on threads."""
        return self if threads == self.threads else replace(self, threads=threads)

    def serves(self, other: Target) -> bool:
        """Return whether code made for another target runs on this one, on any number of threads."""
        return self is other or _serves(self, other)

    def isa_at_least(self, level: str) -> bool:
        """Return whether a CPU target includes an ISA level."""
        order = list(ISA_LEVELS)
        return order.index(self.isa) >= order.index(level)

    def fields(self) -> dict[str, object]:
        """Return the named fields for a key."""
        return {
            "engine": self.engine_kind,
            "runtime": self.runtime,
            "device": dict(self.device),
            "threads": self.threads,
        }


def cpu_target(max_isa: str | None = None) -> Target:
    """Return the CPU target that code is made for: of this host, or of the weaker instructions that ``max_isa`` names.

    ``max_isa`` is the setting max_cpu_isa: an ISA level without extensions, or with those that follow, each after a ``+``;
    empty: all of this host. None: the one that the environment names (`chosen_instructions`). Raises ValueError for
    instructions that this host does not have.
    """
    level, extensions = chosen_instructions(max_isa)
    return Target("cpu", "native", _device(level, [*extensions]))


@lru_cache(maxsize=256)
def _serves(have: Target, need: Target) -> bool:
    if have.engine_kind != "cpu" or need.engine_kind != "cpu":
        return have == need
    return have.isa_at_least(need.isa) and {*need.extensions} <= {*have.extensions}


def _device(level: str, extensions: list[str]) -> tuple[tuple[str, str], ...]:
    isa = ("isa", level)
    return (isa, ("extensions", " ".join(extensions))) if extensions else (isa,)

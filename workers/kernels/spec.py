"""The spec of a kernel: its generator's name and the parameters that it is specialised for."""

from __future__ import annotations

from typing import TypeAlias

from poolrt.cachestore.deferred_namedtuple import NamedTuple

Value: TypeAlias = "bool | int | float | str | tuple[Value, ...] | None"


class KernelSpec(NamedTuple):
    """Names one kernel: the generator module (or ``.cl`` file) that makes it, and the parameters it is specialised for."""

    generator: str
    params: tuple[tuple[str, Value], ...] = ()

    @classmethod
    def of(cls, generator: str, **params: Value) -> KernelSpec:
        """Return the spec with its parameters in canonical order."""
        return cls(generator, tuple(sorted(params.items())))

    @property
    def name(self) -> str:
        """The name of an OpenCL kernel's function: the generator, without its folder."""
        return self.generator.rpartition(".")[2]

    def fields(self) -> dict[str, object]:
        """Return the named fields for a key."""
        return {"generator": self.generator, "params": dict(self.params)}

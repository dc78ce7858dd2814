"""A primitive as data: its kernels and nested primitives, the launches that run them, constant tables and its scratchpad.

An implementation *describes* a primitive with a `Program`; a creator compiles the program's kernels into an *entry*;
a worker realizes the entry and binds memory to its launches. Neither step needs code of the operation itself, so a
worker that only runs cached primitives imports no operation and no compiler.

Arguments of a launch are tuples ``(where, value)``:

``("i", n)`` an int64 · ``("f", x)`` a float64 · ``("m", (arg, offset))`` the address of an execution argument plus bytes
``("s", offset)`` an address in the scratchpad · ``("t", offset)`` an address in the constant tables

A native kernel is called as ``kernel(begin, end, *arguments)`` over sub-ranges of ``work`` independent items: any split
of ``range(work)`` gives the same result, and launches run one after the other. An OpenCL kernel has no work range; it is
enqueued over ``global_size`` in groups of ``local_size``, with int64 as ``long``, float64 as ``float`` and addresses as
``__global`` buffers followed by a ``long`` offset in bytes. Each is a program binary of its own, called like its
generator (its last part); its spec declares the work-group size (``local``) and grid classes that it is launched with.

A *nested* primitive is one of its own, with an entry of its own that other primitives share; a launch executes it on
places of the outer one: memory, scratchpad or tables, never numbers.

No launch names an execution argument of another engine: *transfers* copy its bytes to a place that launches read, or from
a place that they have written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from poolrt.cachestore.deferred_namedtuple import NamedTuple

from ..kernels.spec import KernelSpec

if TYPE_CHECKING:
    from .primitive_desc import PrimitiveDesc

LaunchArgument: TypeAlias = "tuple[str, int | float | tuple[int, int]]"


class Launch(NamedTuple):
    """One call of kernel number ``kernel`` over ``work`` independent items (CPU) or an ND-range (OpenCL)."""

    kernel: int
    args: tuple[LaunchArgument, ...]
    work: int = 1
    global_size: tuple[int, ...] = ()
    local_size: tuple[int, ...] = ()


class NestedLaunch(NamedTuple):
    """One execution of nested primitive number ``primitive``, its arguments at places of the outer primitive.

    ``scratchpad`` is where its own scratchpad begins in the outer one.
    """

    primitive: int
    args: tuple[tuple[int, LaunchArgument], ...]
    scratchpad: int = 0


class Transfer(NamedTuple):
    """A copy of the first ``nbytes`` between argument ``arg`` of another engine and a ``place`` on this one.

    The place is in the scratchpad or in another argument.
    """

    arg: int
    place: LaunchArgument
    nbytes: int


class Program(NamedTuple):
    """All that executing a primitive needs, except compiled code: ``scratchpad`` in bytes, ``tables`` as raw bytes.

    ``copies_in`` come before all launches, ``copies_out`` after them.
    """

    kernels: tuple[KernelSpec, ...]
    launches: tuple[Launch | NestedLaunch, ...]
    tables: bytes = b""
    scratchpad: int = 0
    nested: tuple[PrimitiveDesc, ...] = ()
    copies_in: tuple[Transfer, ...] = ()
    copies_out: tuple[Transfer, ...] = ()

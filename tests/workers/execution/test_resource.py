"""Resources link the launches of nested primitives into those of the outer one, with any kernels and tables."""

from __future__ import annotations

from typing import TypeAlias

import pytest

from poolrt.workers.execution.resource import Resource
from poolrt.workers.implementations.program import Launch, LaunchArgument, NestedLaunch
from poolrt.workers.primitives.entry import Entry, MalformedEntry

SRC, DST, BIAS = 1, 17, 41
Linked: TypeAlias = Resource[str, str]


def resource(
    name: str, launches: tuple[Launch | NestedLaunch, ...], scratchpad: int = 0, nested: tuple[Linked, ...] = ()
) -> Linked:
    """Return a resource whose kernels and tables are names."""
    keys = tuple(b"key" for _ in nested)
    entry = Entry(name, "cpu", (b"", b""), (), launches, bytes(64), scratchpad, keys)
    return Resource(entry, [f"{name} 0", f"{name} 1"], f"{name}'s tables", nested)


def run(kernel: int, *args: LaunchArgument) -> Launch:
    return Launch(kernel, args, 5, (8, 1), (4, 1))


INNER = (
    run(1, ("m", (SRC, 16)), ("s", 32), ("t", 8), ("i", 3), ("f", 0.5)),
    run(0, ("m", (DST, 0)), ("m", (BIAS, 4)), ("m", (SRC, 0))),
)


def test_launches_that_are_not_nested_have_their_own_kernels_and_tables() -> None:
    first, second = resource("inner", INNER, 64).launches
    assert (first.kernel, first.work, first.global_size, first.local_size) == ("inner 1", 5, (8, 1), (4, 1))
    assert first.args == (("m", (SRC, 16)), ("s", 32), ("t", ("inner's tables", 8)), ("i", 3), ("f", 0.5))
    assert second.kernel == "inner 0"


def test_arguments_of_a_nested_primitive_lie_where_the_outer_one_says() -> None:
    inner = resource("inner", INNER, 64)
    places: tuple[tuple[int, LaunchArgument], ...] = ((SRC, ("m", (DST, 128))), (DST, ("s", 256)), (BIAS, ("t", 40)))
    outer = resource("outer", (run(0, ("t", 0)), NestedLaunch(0, places, 512), run(1)), 576, (inner,))
    own, first, second, last = outer.launches
    assert [launch.kernel for launch in outer.launches] == ["outer 0", "inner 1", "inner 0", "outer 1"]
    assert own.args == (("t", ("outer's tables", 0)),)
    assert first.args == (("m", (DST, 144)), ("s", 544), ("t", ("inner's tables", 8)), ("i", 3), ("f", 0.5))
    assert second.args == (("s", 256), ("t", ("outer's tables", 44)), ("m", (DST, 128)))
    assert last.args == ()


def test_nesting_goes_to_any_depth_and_equal_primitives_share_a_resource() -> None:
    inner = resource("inner", INNER, 64)
    places: tuple[tuple[int, LaunchArgument], ...] = ((SRC, ("m", (SRC, 8))), (DST, ("s", 0)), (BIAS, ("t", 0)))
    middle = resource("middle", (NestedLaunch(0, places, 64), NestedLaunch(0, places, 64)), 128, (inner,))
    outer = resource("outer", (NestedLaunch(0, ((SRC, ("m", (BIAS, 1000))),), 1024),), 2048, (middle,))
    first, _, third, _ = outer.launches
    assert first == third
    assert first.args[:3] == (("m", (BIAS, 1024)), ("s", 1120), ("t", ("inner's tables", 8)))
    assert outer.launches[1].args == (("s", 1024), ("t", ("middle's tables", 4)), ("m", (BIAS, 1008)))


def test_launches_of_one_kernel_on_as_much_work_share_the_time_of_the_primitive() -> None:
    launches = (run(0)._replace(work=9), *[run(0)] * 10, *[run(1)] * 2)
    outer = resource("outer", launches)
    found = Resource(outer.entry._replace(nanoseconds=1000), ["0", "1"], "", ()).launches
    # A launch that has no equal may take most of the time.
    assert [launch.nanoseconds for launch in found] == [500] + [100] * 10 + [500] * 2


def test_a_nested_primitive_that_lacks_an_argument_or_room_is_refused() -> None:
    inner = resource("inner", INNER, 64)
    places: tuple[tuple[int, LaunchArgument], ...] = ((SRC, ("s", 0)), (DST, ("s", 0)))
    with pytest.raises(MalformedEntry, match="a nested primitive needs argument 41"):
        _ = resource("outer", (NestedLaunch(0, places),), 64, (inner,)).launches
    with pytest.raises(MalformedEntry, match="the scratchpad of nested primitive 0 exceeds the outer one"):
        _ = resource("outer", (NestedLaunch(0, (*places, (BIAS, ("t", 0))), 1),), 64, (inner,)).launches


def test_a_resource_needs_all_nested_primitives_that_its_entry_names() -> None:
    entry = Entry("outer", "cpu", (), (), (), b"", 0, (b"key",))
    with pytest.raises(MalformedEntry, match="0 nested primitives instead of 1"):
        Resource[str, str](entry, [], "", ())

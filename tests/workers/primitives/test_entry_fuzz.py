"""Ten thousand signed payloads of programs with other ideas: ready to run, or refused, and nothing else happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgpack
import pytest

from poolrt.workers.desc import Convolution, MemoryDesc, PrimitiveAttr
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import primitive_desc
from poolrt.workers.implementations.program import Launch, NestedLaunch, Program, Transfer
from poolrt.workers.kernels.spec import KernelSpec
from poolrt.workers.primitives.entry import MalformedEntry, pack_entry, parse_entry
from tests.workers import compiled

from ...mutations import fresh_seed
from ..fuzzer import fuzz

ARGS = (("m", (1, 64)), ("m", (17, 0)), ("i", 1 << 40), ("f", 0.5), ("s", 128), ("t", 8))
PROGRAM = Program((KernelSpec.of("eltwise"),), (Launch(0, ARGS, 100), Launch(0, ARGS, 7, (64,), (16,))), bytes(16), 256)
ENTRY = pack_entry("native:eltwise", "cpu", PROGRAM, [bytes(range(200))], [])


def test_an_entry_is_parsed_as_it_was_packed() -> None:
    entry = parse_entry(ENTRY)
    assert (entry.launches, entry.tables, entry.scratchpad) == (PROGRAM.launches, PROGRAM.tables, PROGRAM.scratchpad)
    assert entry.nested == ()


def test_an_entry_names_its_nested_primitives_and_places_their_arguments() -> None:
    nested = NestedLaunch(1, ((1, ("m", (33, 8))), (17, ("s", 64)), (41, ("t", 8))), 128)
    program = PROGRAM._replace(launches=(*PROGRAM.launches, nested))
    entry = parse_entry(pack_entry("nested:matmul", "cpu", program, [b"object"], [], [b"one key", b"another"]))
    assert entry.nested == (b"one key", b"another")
    assert entry.launches == program.launches


def test_an_entry_names_what_is_transferred() -> None:
    copies_in, copies_out = (
        (Transfer(1, ("s", 56), 200), Transfer(17, ("m", (1, 8)), 4)),
        (Transfer(17, ("s", 0), 256),),
    )
    program = PROGRAM._replace(copies_in=copies_in, copies_out=copies_out)
    entry = parse_entry(pack_entry("opencl:cross_engine", "cpu", program, [b"object"], []))
    assert (entry.copies_in, entry.copies_out) == (copies_in, copies_out)


@pytest.mark.parametrize(
    "transfer",
    [
        [1, ["s", 57], 200],  # behind the scratchpad
        [1, ["s", -1], 4],
        [1, ["s", 0], -1],
        [1, ["s", 0], 1.0],
        [1, ["m", 0], 4],
        [1, ["m", [1, None]], 4],
        [1, ["t", 0], 4],
        [1, ["i", 0], 4],
        ["1", ["s", 0], 4],
        [1, ["s", 0]],
        "ab",
    ],
)
@pytest.mark.parametrize("when", ["copies_in", "copies_out"])
def test_a_transfer_that_cannot_be_is_refused(when: str, transfer: Any) -> None:
    with pytest.raises(MalformedEntry):
        parse_entry(changed(**{when: [transfer]}))


@pytest.mark.parametrize("count", [3_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_damaged_entries_are_bound_or_refused(count: int, tmp_path: Path) -> None:
    # Given the entry of a primitive with two kernels, tables and a scratchpad
    src, weights = MemoryDesc((1, 16, 8, 8), "f32"), MemoryDesc((16, 16, 3, 3), "f32")
    convolution = Convolution(src, weights, None, src, (1, 1), (0, 0), (1, 1), (1, 1))
    data = compiled.creator().create(primitive_desc(convolution, PrimitiveAttr(), cpu_target()))
    entry = parse_entry(data)
    assert min(len(entry.binaries), len(entry.tables), entry.scratchpad) > 1
    # When it is damaged, signed, opened, parsed, mapped and bound to memory
    seen = fuzz("entry", data, tmp_path, fresh_seed(), count)
    # Then each step has refused some of them, and let pass others
    assert min(seen[name] for name in ("sound", "MalformedEntry", "ObjectError")) > 10


@pytest.mark.parametrize("name", ["binaries", "names", "launches", "nested", "copies_in", "copies_out"])
@pytest.mark.parametrize("value", ["text", "", b"", {}, None, 5, ["x", None], [[]]])
def test_a_list_of_something_else_is_refused(name: str, value: Any) -> None:
    with pytest.raises(MalformedEntry):
        parse_entry(changed(**{name: value}))


@pytest.mark.parametrize("value", [-1, 1 << 48, 1.0, True, None, "1"])
def test_a_malformed_size_of_the_scratchpad_is_refused(value: Any) -> None:
    with pytest.raises(MalformedEntry):
        parse_entry(changed(scratchpad=value))


@pytest.mark.parametrize(
    "launch",
    [
        [1, [], 1, [], []],  # there is one kernel
        [0.0, [], 1, [], []],
        [True, [], 1, [], []],
        [0, [], 1.5, [], []],
        [0, [], 1 << 63, [], []],
        [0, [], 1, "ab", []],
        [0, [], 1, [], [-1]],
        [0, [], 1, []],
        [0, [["s", 257]], 1, [], []],
        [0, [["t", 17]], 1, [], []],
        [0, [["t", False]], 1, [], []],
        [0, [["i", 1 << 63]], 1, [], []],
        [0, [["m", [1, 0.5]]], 1, [], []],
        [0, [["m", 1]], 1, [], []],
        [0, [["m", b"ab"]], 1, [], []],
        [0, [["f", "1"]], 1, [], []],
        [0, [["x", 1]], 1, [], []],
        [0, [[{}, 1]], 1, [], []],
        [0, {"a": 1}, 1, [], []],
        [0, [], 0],  # there is no nested primitive
    ],
)
def test_a_launch_that_cannot_be_is_refused(launch: list[Any]) -> None:
    with pytest.raises(MalformedEntry):
        parse_entry(changed(launches=[launch]))


@pytest.mark.parametrize(
    "launch",
    [
        [2, [], 0],  # there are two nested primitives
        [-1, [], 0],
        [0, [], 257],
        [0, [], "0"],
        [0, [[1, ["i", 1]]], 0],
        [0, [[1, ["f", 1.0]]], 0],
        [0, [[1, ["s", 257]]], 0],
        [0, [[1, ["t", 17]]], 0],
        [0, [[1, ["m", [1, None]]]], 0],
        [0, [["1", ["s", 0]]], 0],
        [0, [[1, "s0"]], 0],
        [0, [[1, ["s"]]], 0],
        [0, [[1]], 0],
        [0, None, 0],
        "abc",
    ],
)
def test_a_nested_launch_that_cannot_be_is_refused(launch: Any) -> None:
    assert parse_entry(changed(nested=[b"one", b"two"], launches=[[1, [[1, ["s", 256]]], 256]])).launches
    with pytest.raises(MalformedEntry):
        parse_entry(changed(nested=[b"one", b"two"], launches=[launch]))


def test_a_kernel_is_named_where_a_program_has_many_and_only_there() -> None:
    assert parse_entry(changed(engine="opencl", names=["eltwise"])).kernel_names == ("eltwise",)
    for engine, names in (("opencl", []), ("opencl", ["a", "b"]), ("cpu", ["eltwise"])):
        with pytest.raises(MalformedEntry, match="kernel names"):
            parse_entry(changed(engine=engine, names=names))


def changed(**parts: Any) -> bytes:
    """Return the entry with other parts."""
    packed: bytes = msgpack.packb({**msgpack.unpackb(ENTRY), **parts})
    return packed


def test_each_binary_has_an_identity_or_none_has() -> None:
    assert parse_entry(changed(kernels=[b"one"])).kernels == (b"one",)
    assert parse_entry(changed(kernels=[])).kernels == ()
    for kernels in ([b"one", b"two"], ["one"], b"one", None):
        with pytest.raises(MalformedEntry):
            parse_entry(changed(kernels=kernels))

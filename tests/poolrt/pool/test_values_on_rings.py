"""The arguments and results of functions on rings: values of all kinds, in order, from iterables that block and that do not."""

from __future__ import annotations

import marshal
import os
import random
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.errors import CallNotLoaded
from poolrt.functions.ring_call import RingCall
from poolrt.workers.ipc.call_ring import RETURNED_PLAIN, SubmittingCallRing
from poolrt.workers.processes.plain_pickles import UNPACKING_ERRORS, pack_numbers, pack_scalars, unpack_scalar

from .processes import BOUND_S, wait_until


@pytest.fixture
def own_pool(settings: dict[str, Any]) -> Iterator[poolrt.Pool]:
    with poolrt.Pool(workers=2, threads=1, **settings) as pool:
        yield pool


def _warm(pool: poolrt.Pool, function: Callable[..., Any], *args: Any) -> None:
    """Let a function be called on the rings to all workers."""
    calls = pool._session.link.client.calls

    def is_on_rings() -> bool:
        rings = calls._rings.values()
        before = sum(each.ring.submitted for each in rings)
        for _ in range(4):
            pool.submit(function, *args).result(BOUND_S)
        numbers = {len(ring.functions) for ring in rings}
        return (
            sum(each.ring.submitted for each in rings) >= before + 4
            and len(numbers) == 1
            and len(rings) == pool.workers
        )

    wait_until(is_on_rings, "the function is called on rings")


def _note(path: str, number: int) -> int:
    with open(path, "a") as file:
        file.write(f"{number}\n")
    return number


def _noted(path: Path) -> list[int]:
    return [*map(int, path.read_text().split())] if path.exists() else []


def _twice(number: Any) -> Any:
    return number, number


def _same(value: Any) -> Any:
    return value


def test_values_of_all_kinds_are_mapped_in_order_whatever_they_come_in(own_pool: poolrt.Pool) -> None:
    _warm(own_pool, _same, 1)
    _warm(own_pool, _twice, 1)
    kinds: list[Any] = [
        *(0, -1, 2**31, -(2**63), 10**400, True, False, None, 1.5, -0.0, float("inf"), 1j, 5e-324),
        *("", "a", "\ud800", "\0x", "😀" * 30, "z" * 1024, "z" * 1025, b"", b"\0", bytes(range(256)) * 4, bytes(1025)),
        *((), (1, "a"), [1, [2]], {"a": None}, np.float32(3), np.arange(5)),
    ]
    generator = random.Random()
    given = [generator.choice(kinds) for _ in range(700)]
    expected = [(type(value), repr(value)) for value in given]
    for values in (given, tuple(given), iter(given)):
        assert [(type(value), repr(value)) for value in own_pool.map(_same, values)] == expected
    for size in (1, 3, 100):
        found = own_pool.map(_same, given, chunksize=size)
        assert [(type(value), repr(value)) for value in found] == expected
    futures = [own_pool.submit(_same, value) for value in given]
    assert [(type(each.result(BOUND_S)), repr(each.result())) for each in futures] == expected
    assert [repr(pair) for pair in own_pool.map(_twice, given)] == [repr((value, value)) for value in given]
    own = [*zip(range(9, 300), [*range(291)], strict=True)]
    assert [*own_pool.map(pow, range(9, 300), [*range(291)])] == [base**power for base, power in own]


def test_lists_of_numbers_come_back_as_they_are(own_pool: poolrt.Pool) -> None:
    _warm(own_pool, _list, "int", 0, 1)
    for kind in ("int", "float", "bool", "mixed", "wide", "odd"):
        for start, stop in (
            (-3, 3),
            (-(2**31), 4 - 2**31),
            (2**31 - 5, 2**31),
            (2**31 - 5, 2**31 + 1),
            (0, 5000),
            (7, 7),
        ):
            expected = _list(kind, start, stop)
            found = own_pool.submit(_list, kind, start, stop).result(BOUND_S)
            assert [*map(type, found)] == [*map(type, expected)]
            assert found == expected
            found = [*own_pool.map(partial(_convert, kind), range(start, stop), chunksize=90)]
            assert [*map(type, found)] == [*map(type, expected)]
            assert found == expected


def test_a_list_that_a_worker_says_with_text_comes_by_message(
    own_pool: poolrt.Pool, capfd: pytest.CaptureFixture[str]
) -> None:
    _warm(own_pool, _list, "int", 0, 1)
    assert own_pool.submit(_say_list, 5).result(BOUND_S) == [0, 1, 2, 3, 4]
    assert [own_pool.submit(_say_list, 5).result(BOUND_S) for _ in range(20)] == [[0, 1, 2, 3, 4]] * 20
    wait_until(lambda: capfd.readouterr().out.count("five") > 0, "the text has come")


def _say_list(count: int) -> list[int]:
    print("five", flush=True)
    return [*range(count)]


class _Number(int):
    """A number that is no plain one."""


def _convert(kind: str, value: int) -> Any:
    if kind == "mixed":
        return (value, float(value), None)[value % 3]
    if kind == "odd":
        return (value, _Number(value), bytearray(b"i123"), np.int32(5), [value])[abs(value) % 5] if value % 7 else value
    values: dict[str, Any] = {"int": value, "float": value / 3, "bool": bool(value), "wide": value << 31}
    return values[kind]


def _list(kind: str, start: int, stop: int) -> list[Any]:
    return [_convert(kind, value) for value in range(start, stop)]


def test_lists_of_numbers_are_packed_without_a_pickle_and_no_others() -> None:
    rng = random.Random(3)
    for values in ([1], [1.5], [0, -1, 2**31 - 1, -(2**31)], [float("nan"), -0.0, 1e300], [5] * 4096):
        packed = pack_numbers(values)
        assert packed is not None
        assert repr(unpack_scalar(packed)) == repr(values)
        for _ in range(300):
            damaged = bytearray(packed)
            damaged[rng.choice([0, 1, 2, 3, 4, rng.randrange(len(packed))])] = rng.randrange(256)
            tracemalloc.start()
            try:
                unpack_scalar(bytes(damaged))
            except UNPACKING_ERRORS:
                pass
            assert tracemalloc.get_traced_memory()[1] < 1_000_000
            tracemalloc.stop()
    others: list[list[Any]] = [[], [5] * 4097, [True], [1, True, 1], [1, 2.5], [1, 2**31, 1], [1, None, 1], [1, [2], 1]]
    others += [
        [1, bytearray(b"i1234"), 1],
        [1, _Number(2), 1],
        [1, np.float64(1), 1],
        [1, object(), 1],
        ["a"],
        [1, "i", 1],
    ]
    assert [pack_numbers(values) for values in others] == [None] * len(others)
    for wrong in (b"[", b"[\1\0\0\0", b"[\1\0\0\0i\0\0\0", b"[\xff\xff\xff\x7f", b"[\1\0\0\0g" + bytes(7)):
        with pytest.raises(UNPACKING_ERRORS):
            unpack_scalar(wrong)


def test_calls_of_a_list_are_given_to_all_workers_alike(own_pool: poolrt.Pool, tmp_path: Path) -> None:
    """None ends before all are given, however long that takes."""
    path = tmp_path / "given"
    path.touch()
    _warm(own_pool, _where, str(path))
    path.unlink()
    calls = own_pool._session.link.client.calls
    rings = calls._rings.values()

    def are_empty() -> bool:
        calls.collect()
        return not any(each.calls for each in rings)

    # Calls that moved from a worker which was held up are in its queue until it has come to them.
    wait_until(are_empty, "all queues are empty")
    before = [each.ring.submitted for each in rings]
    results = own_pool.map(_where, [str(path)] * 8)
    given = [each.ring.submitted - count for each, count in zip(rings, before, strict=True)]
    path.touch()
    assert given == [4, 4]
    assert len({*results}) == 2


def _where(path: str) -> int:
    """Return the process once a file is there."""
    deadline = time.monotonic() + BOUND_S
    while not os.path.exists(path) and time.monotonic() < deadline:
        time.sleep(0.01)
    return os.getpid()


def test_a_call_of_map_begins_though_the_next_item_blocks(own_pool: poolrt.Pool, tmp_path: Path) -> None:
    """A list, a tuple and a range never block; all else may."""
    path = tmp_path / "calls"
    note = partial(_note, str(path))
    assert [*own_pool.map(note, range(40))] == [*range(40)]

    def items() -> Iterator[int]:
        for number in range(40, 60):
            yield number
            wait_until(lambda number=number: number in _noted(path), "the call has begun")  # type: ignore[misc]

    assert [*own_pool.map(note, items())] == [*range(40, 60)]
    assert sorted(_noted(path)) == [*range(60)]


def test_a_damaged_result_is_the_error_of_its_call(own_pool: poolrt.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tuple of two thousand million elements, no type, and a number without its bytes: others get their results."""
    _warm(own_pool, abs, 0)
    damages: list[bytes] = []

    def damaged(ring: SubmittingCallRing, sequence: int) -> tuple[int, bytes]:
        status, value = outcome(ring, sequence)
        return status, damages.pop() if damages and status == RETURNED_PLAIN else value

    outcome = SubmittingCallRing.outcome
    monkeypatch.setattr(SubmittingCallRing, "outcome", damaged)
    for damage in (b"(\xff\xff\xff\x7f", b"?", b"g12"):
        damages.append(damage)
        with pytest.raises(CallNotLoaded, match="the result of a function cannot be loaded"):
            list(own_pool.map(abs, range(-8, 0), timeout=BOUND_S))
        assert not damages
        assert list(own_pool.map(abs, range(-8, 0), timeout=BOUND_S)) == [8, 7, 6, 5, 4, 3, 2, 1]


def test_a_call_that_is_counted_while_it_ends_is_not_open_afterwards(
    own_pool: poolrt.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    _warm(own_pool, abs, 0)
    _warm(own_pool, str, 0)
    client = own_pool._session.link.client
    open_futures, calls = client.open_futures, client.calls
    forget = calls._forget
    seen: set[int] = set()

    def count_late(call: Any) -> None:
        forget(call)
        if type(call) is RingCall and call.request not in seen:  # as a thread that has submitted it, and is slow
            seen.add(call.request)
            open_futures.count_all([call])

    kept = []
    monkeypatch.setattr(calls, "_forget", count_late)
    for results in (
        own_pool.map(abs, range(-64, 0)),
        own_pool.map(str, range(64)),
        own_pool.map(str, range(64), chunksize=2),
    ):
        kept.append(results)
        assert len([*results]) == 64
    assert seen
    assert open_futures.all() == []


def test_damaged_arguments_are_refused_before_they_take_memory() -> None:
    packed = pack_scalars((5, 2.5, "text", None, True, b"bytes", 1 << 70))
    assert packed is not None
    assert unpack_scalar(packed) == (5, 2.5, "text", None, True, b"bytes", 1 << 70)
    rng = random.Random()
    for _ in range(2000):
        damaged = bytearray(packed)
        # The count of arguments, which is the only size that takes memory before anything is read
        damaged[rng.randrange(3, 5)] = rng.randrange(1, 256)
        with pytest.raises(UNPACKING_ERRORS):
            unpack_scalar(bytes(damaged))


@pytest.mark.parametrize("kind", [b"(", b"[", b"<", b">", b"\xa8", b"\xdb", b"\xbc", b"\xbe"])
@pytest.mark.parametrize("count", [16_384, 65_536, 1 << 24, (1 << 31) - 1])
@pytest.mark.parametrize("before", [(), (7,), (40, "((((", 1 << 80, b"[" * 9, 1.5)], ids=["first", "second", "later"])
def test_a_count_in_damaged_arguments_takes_no_memory(kind: bytes, count: int, before: tuple[Any, ...]) -> None:
    container = kind + count.to_bytes(4, "little")
    inner = b"".join(marshal.dumps(value, 2) for value in before)
    arguments = b"(" + (len(before) + 1).to_bytes(4, "little") + inner
    tracemalloc.start()
    try:
        for damaged in (container + inner, container, arguments + container, arguments + container + inner):
            with pytest.raises(UNPACKING_ERRORS):
                unpack_scalar(damaged)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_arguments_that_look_like_counts_are_loaded() -> None:
    rng = random.Random(4)
    alphabet = "([<>\0\xff\u1234a\n"
    numbers = [0x28, 0x5B, 0x28FF, 0x5BFF_FF28, -0x28, 1 << 62, 0x28282828 << 40, 2.5]
    for _ in range(20_000):
        args = tuple(
            rng.choice(
                (
                    rng.choice(numbers),
                    rng.getrandbits(rng.randrange(1, 130)),
                    struct.unpack("d", rng.randbytes(8))[0],
                    "".join(rng.choices(alphabet, k=rng.randrange(20))),
                    rng.randbytes(rng.randrange(20)),
                    complex(rng.random(), rng.random()),
                    None,
                    True,
                )
            )
            for _ in range(rng.randrange(6))
        )
        packed = pack_scalars(args)
        assert packed is not None
        assert repr(unpack_scalar(packed)) == repr(args)

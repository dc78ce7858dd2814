"""Engines by name, and the binaries that they keep realized."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest

from poolrt.workers.engines.engine import Engine
from poolrt.workers.engines.realized import Realized
from poolrt.workers.engines.target import cpu_target
from tests.workers.own_process import python


class Thing:
    """A realized object."""


def test_there_is_one_cpu_engine_and_it_has_the_target_of_the_host() -> None:
    assert Engine.count("cpu") == 1
    assert Engine("cpu").target == Engine("cpu", 0).target == cpu_target()
    with pytest.raises(ValueError, match="index: there is one engine of kind cpu"):
        Engine("cpu", 1)


def test_an_unknown_kind_is_an_error_that_names_the_argument() -> None:
    with pytest.raises(ValueError, match="kind: unknown engine kind 'gpu'; known: cpu, opencl"):
        Engine("gpu")
    with pytest.raises(ValueError, match="kind: unknown"):
        Engine.count("gpu")


def test_an_engine_of_one_kind_is_not_taken_for_one_of_another() -> None:
    with pytest.raises(ValueError, match="expect one of kind opencl, got Engine\\('cpu', 0\\)"):
        _ = Engine("cpu").opencl


def test_opencl_engines_are_counted_and_opened(device: str) -> None:
    code = """
from poolrt.workers.engines.engine import Engine
engines = [Engine("opencl", i) for i in range(Engine.count("opencl"))]
print(dict(engines[0].target.device)["name"])
print(engines[0].opencl.context != Engine("opencl").opencl.context)
try:
    engines[0].cpu
except ValueError as error:
    print(error)
"""
    name, apart, refused = python(code).splitlines()
    assert (name, apart) == (device, "True")
    assert refused == "engine: expect one of kind cpu, got Engine('opencl', 0)"


def test_a_binary_is_realized_once_while_it_is_in_use_or_was_used_lately() -> None:
    made: list[bytes] = []

    def realize(binary: bytes) -> Thing:
        made.append(binary)
        return Thing()

    realized = Realized(realize, kept=2)
    # Given three that are in use, one more than is kept
    held = [realized.get(b"%d" % i) for i in range(3)]
    # When they are asked for again, nothing is realized
    assert [realized.get(b"%d" % i) for i in range(3)] == held
    assert made == [b"0", b"1", b"2"]
    # When no reference to them is left, the two used last are kept and the other one is freed
    gone = weakref.ref(held[0])
    held.clear()
    gc.collect()
    assert gone() is None
    realized.get(b"1")
    realized.get(b"2")
    assert len(made) == 3
    realized.get(b"0")
    assert made == [b"0", b"1", b"2", b"0"]


def test_threads_that_want_the_same_binary_share_one() -> None:
    meeting = threading.Barrier(8, timeout=30)
    realized = Realized(lambda _: Thing(), kept=4)
    found: list[Thing] = []

    def ask() -> None:
        meeting.wait()
        found.append(realized.get(b"same"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 8
    assert len(set(map(id, found))) == 1

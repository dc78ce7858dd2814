"""Runs of a session that are like the one before take a short way, with the same results and errors."""

from __future__ import annotations

import mmap
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import poolrt.onnx as ort
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.at_lines import at_each_line

from .models import Array, model, session, sums

_W = np.array([1, 2, 4], np.float32)


def _feed(rows: int, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal((rows, 3)).astype(np.float32) for name in "xy"}


def _check(found: ort.InferenceSession, feed: dict[str, Array]) -> list[Array]:
    results = found.run(None, feed)
    np.testing.assert_array_equal(results[0], feed["x"] + feed["y"], strict=True)
    np.testing.assert_array_equal(results[1], feed["x"] * _W, strict=True)
    return results


@pytest.fixture
def found(cache: PrimitiveProvider) -> ort.InferenceSession:
    made = session(sums(), cache)
    for seed in range(3):
        _check(made, _feed(2, seed))
    return made


def test_a_run_like_the_last_one_is_repeated(found: ort.InferenceSession) -> None:
    feed = _feed(2, 4)
    repeated = found._repeat(feed)
    assert repeated is not None
    np.testing.assert_array_equal(repeated["s"], feed["x"] + feed["y"], strict=True)
    assert found._repeat(_feed(3, 4)) is None
    # Arrays with strides are copied.
    turned = {**feed, "y": np.asfortranarray(feed["y"])}
    repeated = found._repeat(turned)
    assert repeated is not None
    np.testing.assert_array_equal(repeated["s"], feed["x"] + feed["y"], strict=True)
    assert not turned["y"].flags.c_contiguous


def test_a_run_on_an_array_at_the_end_of_a_page_is_repeated(cache: PrimitiveProvider) -> None:
    # Given a kernel that reads behind its input, and one that ends at the end of a page
    node = helper.make_node("ReduceMax", ["x"], ["y"], axes=[0])
    made = model([node], {"x": (TensorProto.INT8, [7, 3])}, {"y": (TensorProto.INT8, [1, 3])}, opset=13)
    found = session(made, cache)
    room = np.frombuffer(mmap.mmap(-1, 2 * mmap.PAGESIZE), np.int8)
    x = room[mmap.PAGESIZE - 21 : mmap.PAGESIZE].reshape(7, 3)
    x[:] = np.arange(21).reshape(7, 3)
    # When it is used again and again
    for _ in range(3):
        np.testing.assert_array_equal(found.run(None, {"x": x})[0], [[18, 19, 20]])
    # Then its runs are repeated
    assert found._repeat({"x": x}) is not None


def test_results_are_the_callers_and_sizes_change(found: ort.InferenceSession) -> None:
    feeds = [_feed(1 + seed // 3 % 3, seed) for seed in range(30)]
    kept = [(_check(found, feed), feed) for feed in feeds]
    for results, feed in kept:
        np.testing.assert_array_equal(results[0], feed["x"] + feed["y"])


def test_a_name_or_type_that_is_wrong_is_refused_as_before(found: ort.InferenceSession) -> None:
    feed = _feed(2, 0)
    wrong: list[tuple[Any, str]] = [
        ({"x": feed["x"]}, "missing from input feed"),
        ({**feed, "z": feed["x"]}, "Invalid input name: z"),
        ({**feed, "x": feed["x"].astype(np.float64)}, "Unexpected input data type"),
        ({**feed, "x": feed["x"][:1]}, "has two sizes"),
        ({**feed, "x": feed["x"][0]}, "Invalid rank"),
        ([feed["x"], feed["y"]], "expect a dict"),
    ]
    for given, words in wrong:
        with pytest.raises(Exception, match=words):
            found.run(None, given)
        _check(found, feed)
    with pytest.raises(ort.InvalidArgument, match="Invalid output name"):
        found.run(["t"], feed)
    terminated = ort.RunOptions()
    terminated.terminate = True
    with pytest.raises(Exception, match="terminate"):
        found.run(None, feed, terminated)


def test_views_lists_and_values_are_taken_between_arrays(found: ort.InferenceSession) -> None:
    feed = _feed(4, 1)
    _check(found, feed)
    _check(found, {name: np.asfortranarray(array) for name, array in feed.items()})
    _check(found, {name: np.repeat(array, 2, axis=0)[::2] for name, array in feed.items()})
    np.testing.assert_array_equal(found.run(["s"], {"x": feed["x"].tolist(), "y": feed["y"]})[0], feed["x"] + feed["y"])
    given = {**feed, "y": ort.OrtValue.ortvalue_from_numpy(feed["y"])}
    np.testing.assert_array_equal(found.run(["s"], given)[0], feed["x"] + feed["y"])
    _check(found, feed)


def _on_four_threads(use: Callable[[int, int], object]) -> None:
    """Call a function on four threads, 200 times each, with the numbers of the thread and of the turn; fail if one raises."""
    failures: list[BaseException] = []

    def repeat(number: int) -> None:
        try:
            for turn in range(200):
                use(number, turn)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    threads = [threading.Thread(target=repeat, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_threads_repeat_runs_at_once(found: ort.InferenceSession) -> None:
    _on_four_threads(lambda number, turn: _check(found, _feed(1 + (number + turn // 50) % 2, 1000 * number + turn)))


def _places(declared: bool, cache: PrimitiveProvider) -> ort.InferenceSession:
    """Return a session of NonZero, of matrices of any size, whose output has a type if it is ``declared``."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, [2, None])
    node = helper.make_node("NonZero", ["x"], ["y"])
    graph = helper.make_graph([node], "g", [x], [y if declared else helper.make_empty_tensor_value_info("y")])
    return session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), cache)


def _sparse(rows: int, seed: int) -> dict[str, Array]:
    return {"x": np.random.default_rng(seed).integers(0, 2, (rows, 3)).astype(np.float32)}


@pytest.mark.parametrize("declared", [True, False])
def test_a_run_whose_outputs_are_cut_to_a_count_is_repeated(declared: bool, cache: PrimitiveProvider) -> None:
    places = _places(declared, cache)
    for seed in range(3):
        places.run(None, _sparse(5, seed))
    for seed in range(8):
        feed = _sparse(5, seed)
        repeated = places._repeat(feed)
        assert repeated is not None
        np.testing.assert_array_equal(repeated["y"], np.nonzero(feed["x"]), strict=True)
        # Of another size, nothing is repeated, and the size before is not the last one any more.
        other = _sparse(2 + seed % 2, seed)
        assert places._repeat(other) is None
        np.testing.assert_array_equal(places.run(None, other)[0], np.nonzero(other["x"]), strict=True)
        np.testing.assert_array_equal(places.run(None, feed)[0], np.nonzero(feed["x"]), strict=True)


def test_threads_repeat_runs_of_two_sizes_whose_outputs_are_cut(cache: PrimitiveProvider) -> None:
    places = _places(True, cache)

    def use(number: int, turn: int) -> None:
        feed = _sparse(3 + (number + turn // 20) % 2, 1000 * number + turn)
        np.testing.assert_array_equal(places.run(None, feed)[0], np.nonzero(feed["x"]), strict=True)

    _on_four_threads(use)


def test_a_run_whose_sizes_depend_on_values_is_repeated_for_the_same_values(cache: PrimitiveProvider) -> None:
    kind, ports = TensorProto.INT64, ("start", "end", "step")
    nodes = [helper.make_node("Range", ports, ["r"]), helper.make_node("NonZero", ["r"], ["y"])]
    inputs: dict[str, tuple[int, Any]] = {name: (kind, []) for name in ports}
    made = session(model(nodes, inputs, {"y": (kind, [1, None]), "r": (kind, [None])}), cache)

    def check(start: int, end: int, step: int) -> dict[str, Array]:
        feed = {name: np.array(each) for name, each in zip(ports, (start, end, step), strict=True)}
        found = np.arange(start, end, step)
        places, numbers = made.run(None, feed)
        np.testing.assert_array_equal(numbers, found, strict=True)
        np.testing.assert_array_equal(places, np.nonzero(found), strict=True)
        return feed

    for start in range(3):
        check(-1, 7 + start, 2)
        feed = check(-1, 7 + start, 2)
        repeated = made._repeat(feed)
        assert repeated is not None
        np.testing.assert_array_equal(repeated["r"], np.arange(-1, 7 + start, 2), strict=True)
        assert made._repeat({**feed, "step": np.array(1)}) is None
        assert made._repeat({**feed, "step": np.array(2, np.int32)}) is None
        assert made._repeat({"start": feed["start"], "end": feed["end"]}) is None
    check(0, 0, 1)
    check(-1, 7, 2)


class _Room(bytearray):
    """Bytes of an array, which can be weakly referenced."""


def test_an_array_that_another_thread_replaces_in_the_feed_lives_until_the_run_has_ended(
    found: ort.InferenceSession,
) -> None:
    feed: dict[str, Array] = {}
    rooms: list[weakref.ref[_Room]] = []
    dropped: list[bool] = []

    def fill() -> None:
        room = _Room(_feed(2, 1)["x"].tobytes())
        rooms[:], feed["x"] = [weakref.ref(room)], np.frombuffer(room, np.float32).reshape(2, 3)
        feed["y"] = np.ones((2, 3), np.float32)

    def replace() -> None:
        feed.update({name: np.zeros((2, 3), np.float32) for name in "xy"})
        dropped.append(rooms[0]() is None)

    def run() -> None:
        given = _feed(2, 1)["x"]
        results = found.run(None, feed)
        np.testing.assert_array_equal(results[0], given + 1, strict=True)
        np.testing.assert_array_equal(results[1], given * _W, strict=True)
        fill()

    fill()
    assert at_each_line(run, replace, "inprocess/repeated_runs.py") > 9
    assert not any(dropped), "kernels may read memory that is free"

"""Results of `map`: chunks of all kinds of iterables, in order, kept by nothing once they are yielded, cancelled at the end."""

from __future__ import annotations

import random
import weakref
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

import pytest

from poolrt.connection.futures import PoolFuture
from poolrt.functions.abandoned_calls import AbandonedCalls
from poolrt.functions.call_results import CallResults, ChunkResults, chunks_of


class _Thing:
    """A value that a weak reference may refer to."""


def _combine(*values: Any) -> str:
    return repr(values)


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


@pytest.mark.parametrize("size", [1, 2, 7, 100])
@pytest.mark.parametrize("seed", range(3))
def test_chunks_call_what_map_calls(size: int, seed: int) -> None:
    generator = random.Random(seed)
    start, step = generator.randrange(-50, 50), generator.choice([-7, -1, 1, 3, 10**20])
    numbers = range(start, start + step * generator.randrange(40) + generator.choice([0, 1, -1]), step)
    texts = [str(number) for number in range(generator.randrange(1, 60))]
    sources: list[tuple[Iterable[Any], ...]] = [
        (numbers,),
        (range(0),),
        (texts,),
        (dict.fromkeys(texts),),
        (texts, numbers),
        (numbers, range(30), texts),
        (),
    ]
    for iterables in sources:
        call, chunks = chunks_of(iterables, size)
        found = [call(_combine, *arguments) for arguments in chunks]
        assert all(len(chunk) == size for chunk in found[:-1])
        assert all(found)
        assert [value for chunk in found for value in chunk] == [*map(_combine, *(iterables or ((),)))]
    call, chunks = chunks_of(((text for text in texts),), size)
    assert [value for arguments in chunks for value in call(_combine, *arguments)] == [*map(_combine, texts)]


def test_a_range_without_an_end_in_sight_is_cut_as_it_is_used() -> None:
    call, chunks = chunks_of((range(10**30),), 2)
    assert [call(_combine, *next(chunks)) for _ in range(2)] == [["(0,)", "(1,)"], ["(2,)", "(3,)"]]


def test_what_is_yielded_is_kept_by_nothing_and_the_rest_is_cancelled() -> None:
    things = [_Thing() for _ in range(6)]
    seen = [weakref.ref(thing) for thing in things]
    waiting: Future[Any] = Future()
    futures: deque[Any] = deque([_done(things[:3]), _done(things[3:]), waiting])
    del things
    results = ChunkResults.of(CallResults(futures, None, AbandonedCalls(), of_chunks=True))
    assert iter(results) is results
    for number in range(4):
        thing = next(results)
        assert thing is seen[number]()
        del thing
        assert [ref() is None for ref in seen] == [place <= number for place in range(6)]
    results.close()
    assert waiting.cancelled()
    assert all(ref() is None for ref in seen)
    assert next(results, "none") == "none"


def test_an_error_of_a_chunk_comes_after_the_results_before_it_and_ends_the_iterator() -> None:
    failed: Future[Any] = Future()
    failed.set_exception(KeyError("second"))
    waiting: Future[Any] = Future()
    results = ChunkResults.of(
        CallResults(deque([_done([1, 2]), failed, waiting]), None, AbandonedCalls(), of_chunks=True)
    )
    assert [next(results), next(results)] == [1, 2]
    with pytest.raises(KeyError, match="second"):
        next(results)
    assert waiting.cancelled()
    assert [*results] == []


def test_an_iterator_that_is_dropped_leaves_its_calls_to_be_cancelled() -> None:
    abandoned = AbandonedCalls()
    waiting: Future[Any] = PoolFuture()
    results = ChunkResults.of(CallResults(deque([_done([1, 2]), waiting]), None, abandoned, of_chunks=True))
    assert next(results) == 1
    del results
    assert abandoned
    abandoned.cancel()
    assert waiting.cancelled()

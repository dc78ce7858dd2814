"""The set of processors of a worker that sleeps away from a client: one is left out for so long, and nothing else changes."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from poolrt.workers.processes.apart import Apart

_ALL = os.sched_getaffinity(0)


@pytest.fixture(autouse=True)
def same_set() -> Iterator[None]:
    """Put the set of this thread back."""
    yield
    os.sched_setaffinity(0, _ALL)


@pytest.mark.skipif(len(_ALL) < 2, reason="a processor can be left out of several only")
def test_one_processor_is_left_out_until_the_thread_rejoins() -> None:
    apart = Apart()
    for processor in _ALL:
        apart.leave(processor)
        assert os.sched_getaffinity(0) == _ALL - {processor}
        apart.rejoin()
        assert os.sched_getaffinity(0) == _ALL
        apart.rejoin()
        assert os.sched_getaffinity(0) == _ALL


def test_the_only_processor_and_one_of_others_are_not_left_out() -> None:
    only = max(_ALL)
    os.sched_setaffinity(0, {only})
    apart = Apart()
    for processor in (only, max(_ALL) + 1, 10**6, 2**64 - 2):
        apart.leave(processor)
        assert os.sched_getaffinity(0) == {only}
        apart.rejoin()
        assert os.sched_getaffinity(0) == {only}


@pytest.mark.skipif(len(_ALL) < 2, reason="a processor can be left out of several only")
def test_a_set_that_another_program_has_given_meanwhile_stays() -> None:
    apart, client = Apart(), min(_ALL)
    apart.leave(client)
    os.sched_setaffinity(0, {client})
    apart.rejoin()
    assert os.sched_getaffinity(0) == {client}

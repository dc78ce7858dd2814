"""Every operation on OpenCL: created in one process, run in another that compiles nothing, float64 references."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from poolrt.workers.desc import Arg
from tests.references import reference, unpack
from tests.workers.cases import KINDS, cases

from ...own_process import Server

#: Operations with arguments that problems drawn at random do not have: special values.
SPECIAL = ("eltwise", "softmax")


#: By default one case in so many is computed, others in each run.
FEWER = 3


@pytest.mark.parametrize("kind", SPECIAL)
def test_some_results_are_right_and_the_consumer_compiles_nothing(
    kind: str, creating: Server, running: Server, entries: Path
) -> None:
    first = random.SystemRandom().randrange(FEWER)
    check(kind, {}, range(first, len(cases(kind)), FEWER), creating, running, entries)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_results_are_right_and_the_consumer_compiles_nothing(
    kind: str, creating: Server, running: Server, entries: Path
) -> None:
    check(kind, {}, range(len(cases(kind))), creating, running, entries)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("width", "device_type"), [("4", "GPU"), ("8", "CPU")])
def test_programs_for_other_devices_are_right_too(
    kind: str, width: str, device_type: str, creating: Server, running: Server, entries: Path
) -> None:
    numbers = range(len(cases(kind)))
    check(kind, {"vector_width": width, "type": device_type}, numbers, creating, running, entries)


def check(
    kind: str, identity: dict[str, str], numbers: range, creating: Server, running: Server, entries: Path
) -> None:
    # Given an entry of every case
    assert creating.ask([kind, identity, list(numbers)]) == []
    # When another process runs them
    answer = running.ask([kind, list(numbers)])
    # Then each result is right, nothing else was written, and no kernel had to be compiled
    assert answer["done"] == list(numbers)
    for number in answer["done"]:
        case = cases(kind)[number]
        md = case.memories()[Arg.DST]
        case.check(unpack(np.load(entries / f"{kind}-{number}.npy"), md), reference(case.op, case.attr, case.args))
    assert not answer["damage"]
    assert answer["compiled"] == 0

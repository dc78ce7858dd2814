"""Every operation on OpenCL: created in one process, run in another that compiles nothing, float64 references."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from poolrt.workers.desc import Arg
from tests.references import reference, unpack
from tests.workers.cases import KINDS, cases

from ...own_process import Server

#: Operations with arguments that problems drawn at random do not have: special values.
SPECIAL = ("eltwise", "softmax")


@pytest.mark.parametrize("kind", [k if k in SPECIAL else pytest.param(k, marks=pytest.mark.slow) for k in KINDS])
def test_results_are_right_and_the_consumer_compiles_nothing(
    kind: str, creating: Server, running: Server, entries: Path
) -> None:
    check(kind, {}, creating, running, entries)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("width", "device_type"), [("4", "GPU"), ("8", "CPU")])
def test_programs_for_other_devices_are_right_too(
    kind: str, width: str, device_type: str, creating: Server, running: Server, entries: Path
) -> None:
    check(kind, {"vector_width": width, "type": device_type}, creating, running, entries)


def check(kind: str, identity: dict[str, str], creating: Server, running: Server, entries: Path) -> None:
    # Given an entry of every case
    assert creating.ask([kind, identity]) == []
    # When another process runs them
    answer = running.ask(kind)
    # Then each result is right, nothing else was written, and no kernel had to be compiled
    assert len(answer["done"]) == len(cases(kind))
    for number in answer["done"]:
        case = cases(kind)[number]
        md = case.memories()[Arg.DST]
        case.check(unpack(np.load(entries / f"{kind}-{number}.npy"), md), reference(case.op, case.attr, case.args))
    assert not answer["damage"]
    assert answer["compiled"] == 0

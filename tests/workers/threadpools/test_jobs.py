"""Cutting work into jobs: none is empty or too short, and a pool that balances gets several a thread."""

from __future__ import annotations

import random

import pytest

from poolrt.workers.desc import Convolution, MemoryDesc, PrimitiveAttr
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.cost_model import nanoseconds
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, primitive_descs
from poolrt.workers.threadpools.jobs import Jobs
from poolrt.workers.threadpools.threads import ThreadsPool


def test_there_is_at_least_one_job_and_none_is_empty() -> None:
    seed = random.randrange(1 << 32)
    draw = random.Random(seed)
    for _ in range(2000):
        jobs = Jobs(draw.randint(1, 9), draw.choice([1, 4]), draw.choice([0, 1000, 10_000]))
        work, cost = draw.randint(1, 100), draw.choice([0, 500, 20_000, 10**7])
        count = jobs.cut(work, cost)
        assert 1 <= count <= min(work, jobs.threads * jobs.each), (seed, jobs, work, cost)
        assert count == 1 or cost // count >= jobs.least_ns or not jobs.least_ns, (seed, jobs, work, cost)


@pytest.mark.parametrize(
    ("jobs", "cost", "count"),
    [
        (Jobs(2, 1, 10_000), 19_000, 1),  # too short for two
        (Jobs(2, 1, 10_000), 20_000, 2),
        (Jobs(2, 1, 10_000), 10**9, 2),  # one a thread
        (Jobs(2, 4, 10_000), 70_000, 6),  # as many as are worth it, the same for each thread
        (Jobs(2, 4, 10_000), 10**9, 8),
        (Jobs(7, 1, 10_000), 30_000, 3),  # fewer than threads
    ],
)
def test_long_work_is_cut_into_the_best_number_of_jobs(jobs: Jobs, cost: int, count: int) -> None:
    assert jobs.cut(1000, cost) == count


def test_a_pool_defines_the_shortest_worthwhile_job() -> None:
    with ThreadsPool(3) as pool:
        pool.least_job_ns = 7
        assert Jobs.on(pool) == Jobs(3, 1, 7)


def convolutions(size: int) -> list[PrimitiveDesc]:
    src, dst = MemoryDesc((1, 64, size, size), "f32"), MemoryDesc((1, 64, size, size), "f32")
    op = Convolution(src, MemoryDesc((64, 64, 1, 1), "f32"), None, dst, (1, 1), (0, 0), (0, 0), (0, 0))
    return primitive_descs(op, PrimitiveAttr(), cpu_target())


def test_the_estimate_grows_with_the_problem_and_references_are_slower() -> None:
    small, large = convolutions(8), convolutions(80)
    assert 50 < nanoseconds(large[0]) / nanoseconds(small[0]) < 200
    assert nanoseconds(small[-1]) > 10 * nanoseconds(small[0])
    assert small[-1].impl_name().startswith("ref:")

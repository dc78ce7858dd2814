"""The runner of native kernels finds tasks that must not run side by side."""

from __future__ import annotations

import numpy as np
import pytest

from .native_runner import RegionWrites


def test_tasks_of_one_region_may_write_side_by_side_but_not_to_the_same_byte() -> None:
    content = np.zeros(16, np.uint8)
    writes = RegionWrites({"argument 17": content})
    for task in range(4):
        content[4 * task : 4 * task + 4] += 1
        writes.end_task()
    content[7:8] += 1
    with pytest.raises(AssertionError, match="argument 17: two tasks of one region"):
        writes.end_task()

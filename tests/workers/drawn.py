"""The problems that a test computes in `make test`: some of those that it lists, others in each run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

Problem = TypeVar("Problem")


def drawn(problems: Sequence[Problem], count: int) -> list[Problem]:
    """Return ``count`` of the problems in `make test`, and all of them in the thorough tier.

    For problems of one kind, of which each has a kernel that is compiled for it alone.
    """
    # The profile of `make test` has a share of the usual examples: see `tests/conftest.py`.
    return list(problems) if settings().max_examples >= 100 else random.SystemRandom().sample(problems, count)

"""Every fault drill of the store with small numbers; `make drills` does them with large ones."""

from __future__ import annotations

import pytest

from ...drills.catalogue import STORE, play
from ...drills.scale import LONG, SHORT


@pytest.mark.parametrize("name", STORE)
def test_the_short_drill_holds(name: str) -> None:
    outcome = play(name, SHORT)
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert (outcome.broken, outcome.bad) == ([], 0)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", STORE)
def test_the_long_drill_holds(name: str) -> None:
    outcome = play(name, LONG)
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert (outcome.broken, outcome.bad) == ([], 0)

"""The fault drills of the pool with small numbers; `make drills` does them with large ones."""

from __future__ import annotations

import pytest

from tests.startup.shared_compiler import FOLDER

from ...drills.catalogue import POOL, play
from ...drills.scale import SHORT, USUAL, Scale

#: Drills that `make test` does; the promises of the others have shorter tests of their own there.
DEFAULT = ("kill pool processes", "mutated graphs")


@pytest.fixture(autouse=True)
def _compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have creators compile, as in `make drills`: they are killed at work."""
    monkeypatch.delenv(FOLDER, raising=False)


@pytest.mark.parametrize(
    "name", [name if name in DEFAULT else pytest.param(name, marks=pytest.mark.slow) for name in POOL]
)
def test_the_short_drill_holds(name: str) -> None:
    _play(name, SHORT)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", POOL)
def test_the_usual_drill_holds(name: str) -> None:
    _play(name, USUAL)


def _play(name: str, scale: Scale) -> None:
    outcome = play(name, scale)
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert (outcome.broken, outcome.bad) == ([], 0), outcome.notes
    assert outcome.faults or not name.startswith("kill")

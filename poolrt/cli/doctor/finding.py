"""A finding: the result of one check."""

from __future__ import annotations

from enum import StrEnum

from poolrt.cachestore.deferred_dataclass import dataclass


class State(StrEnum):
    """The state of a finding: `WARN` costs speed or a feature, `FAIL` keeps poolrt from working."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was checked, its state, what was seen, and what to do about it (empty if all is well)."""

    name: str
    state: State
    seen: str
    advice: str = ""


def ok(name: str, seen: str) -> Finding:
    """Return a finding that needs nothing."""
    return Finding(name, State.OK, seen)


def warn(name: str, seen: str, advice: str) -> Finding:
    """Return a finding that costs speed or a feature."""
    return Finding(name, State.WARN, seen, advice)


def fail(name: str, seen: str, advice: str) -> Finding:
    """Return a finding that keeps poolrt from working."""
    return Finding(name, State.FAIL, seen, advice)

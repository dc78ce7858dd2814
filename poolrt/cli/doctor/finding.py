"""A finding: one thing that the doctor looked at, and what it means."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How a finding stands: `WARN` costs speed or a feature, `FAIL` keeps poolrt from working."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, how it stands, what was seen, and what to do about it (empty where all is well)."""

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

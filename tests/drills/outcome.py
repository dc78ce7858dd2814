"""The outcome of a drill: measurements, and broken bounds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True)
class Outcome:
    """The result of one drill; times in seconds.

    `faults` counts the kills, damaged messages or steps of a clock; `calls` those that clients made, and `answered` those
    of them that got what they had asked for. `back_s` is the longest time from the last fault until everything was back.
    `creations` and `in_redis` are one number, or the least and the greatest of several rounds. `longest_s` is the longest
    call, without the caller's own creation; `noise_s` the longest wait of a ready process for a core, which is added to
    the bounds on calls. `broken` holds one sentence for each bound that was broken, `skipped` the reason
    for which the drill could not be done here.
    """

    drill: str
    faults: int = 0
    calls: int = 0
    answered: int = 0
    back_s: float = 0.0
    creations: list[int] = field(default_factory=list)
    bad: int = 0
    longest_s: float = 0.0
    noise_s: float = 0.0
    in_redis: list[int] = field(default_factory=list)
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    skipped: str = ""

    @property
    def verdict(self) -> str:
        """`holds`, `BROKEN` or `skipped`."""
        if self.skipped:
            return "skipped"
        return "BROKEN" if self.broken else "holds"

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {**asdict(self), "verdict": self.verdict}

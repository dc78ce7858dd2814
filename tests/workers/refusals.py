"""The messages of calls that are refused, for programs that run apart from their test."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def refusals(calls: Iterable[Callable[[], object]]) -> list[str]:
    """Return the message of each call that raises a TypeError or ValueError."""
    messages = []
    for call in calls:
        try:
            call()
        except (TypeError, ValueError) as error:
            messages.append(str(error))
    return messages

"""Actions in threads of their own, which have to end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

#: Seconds after which a thread is taken for one that waits for ever.
_BOUND_S: Final = 60.0


def ends(*actions: Callable[[], object]) -> None:
    """Run each action in a thread of its own; raise an action's error, and AssertionError if one does not end."""
    errors: list[BaseException] = []

    def guarded(action: Callable[[], object]) -> None:
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(action,), daemon=True) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_BOUND_S)
        assert not thread.is_alive(), "deadlock: a thread has not ended"
    for error in errors:
        raise error

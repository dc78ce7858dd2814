"""Which element of a tensor is at an index of the padded one."""

from __future__ import annotations


def padded_index(mode: int, index: int, kept: int) -> int:
    """Return the number, among ``kept`` elements, of the one for an index that counts from the first; -1 for the constant.

    ``mode`` is the place of its name in `desc.operations.pad.PAD_MODES`.
    """
    if 0 <= index < kept:
        return index
    if mode == 0:
        return -1
    if mode == 1:
        return 0 if index < 0 else kept - 1
    # Margins are mostly narrow, and divisions slow.
    if mode == 3:
        if -kept <= index < 2 * kept:
            return index + kept if index < 0 else index - kept
        return index % kept
    if -kept < index < 2 * kept - 1:
        return -index if index < 0 else 2 * (kept - 1) - index
    if kept == 1:
        return 0
    period = 2 * (kept - 1)
    found = index % period
    return period - found if found >= kept else found

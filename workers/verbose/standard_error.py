"""Whether this process has standard error."""

from __future__ import annotations

import os
import sys


def has_standard_error() -> bool:
    """Return whether descriptor 2 is standard error still.

    A program may have begun without it, or have closed it since. Python keeps files that get its number then from new programs
    (PEP 446).
    """
    if sys.__stderr__ is None:
        return False
    try:
        return os.get_inheritable(2)
    except OSError:
        return False

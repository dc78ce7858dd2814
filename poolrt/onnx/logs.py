"""ONNX Runtime's severities on Python's log ``poolrt.onnx``."""

from __future__ import annotations

import logging
from typing import Final

LOG: Final = logging.getLogger("poolrt.onnx")
#: Severity of ONNX Runtime (verbose, info, warning, error, fatal) -> level of Python's logs.
_LEVELS: Final = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)


def level_of(severity: int) -> int:
    """Return the level of a severity from 0 (verbose) to 4 (fatal). Raises InvalidArgument for any other."""
    if severity not in range(len(_LEVELS)):
        from .errors import InvalidArgument

        raise InvalidArgument(f"severity: expect 0 (verbose) to 4 (fatal), got {severity!r}")
    return _LEVELS[severity]


def set_default_logger_severity(severity: int) -> None:
    """Set the level of the log ``poolrt.onnx``."""
    LOG.setLevel(level_of(severity))


def set_default_logger_verbosity(verbosity: int) -> None:
    """Do nothing: the log has one level of details."""

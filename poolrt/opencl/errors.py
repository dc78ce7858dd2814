"""The reasons why a program is built by pyopencl alone, and the warning that names one."""

from __future__ import annotations


class Unusual(Exception):
    """A program that the cache leaves to pyopencl. The message is the reason, without a subject."""


class FallbackWarning(UserWarning):
    """A program was built by pyopencl alone, and no other process gets it. The message has the reason."""

"""The command line: one module a command, each with examples in `--help` and one JSON object for `--json`."""

from __future__ import annotations

from .program import main

__all__ = ["main"]

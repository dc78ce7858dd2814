"""The command line: one module a command, each with `--help` that teaches and `--json` that a program can read."""

from __future__ import annotations

from .main import main

__all__ = ["main"]

"""Parsers of numbers on the command line; each error names the accepted range and the given text."""

from __future__ import annotations

import argparse
import math


def positive(text: str) -> int:
    """Return an integer of at least 1."""
    return _integer(text, 1)


def natural(text: str) -> int:
    """Return an integer of at least 0."""
    return _integer(text, 0)


def finite(text: str) -> float:
    """Return a finite number of at least 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a finite number of at least 0, got {text}")
    return number


def _integer(text: str, low: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = low - 1
    if number < low:
        raise argparse.ArgumentTypeError(f"expected an integer of at least {low}, got {text}")
    return number

"""The argument MODEL.onnx of the commands that read a model, and their options for what a model leaves open."""

from __future__ import annotations

import argparse
import re
from itertools import islice
from pathlib import Path
from typing import Final

from poolrt.cli.numbers import positive
from poolrt.cli.report import UsageError
from poolrt.spelling import nearest

#: Names of a folder that are compared with a missing one.
_MOST_NAMES: Final = 1000


def model_path(text: str) -> Path:
    """Return the path that a word names."""
    if re.match(r"[a-z][a-z0-9+.-]*://", text, re.IGNORECASE):
        raise argparse.ArgumentTypeError(f"expected a file, got the URL {text}: download it first")
    return Path(text)


def require_file(path: Path) -> None:
    """Raise UsageError unless a model's path is a file; the message names the file of a name that is near."""
    try:
        if path.is_file():
            return
        reason = "not a file" if path.exists() else f"no such file{_near(path)}"
    except (OSError, ValueError) as error:  # a name that is too long, or has a NUL
        reason = getattr(error, "strerror", None) or str(error)
    raise UsageError(f"{path}: {reason}")


def add_shapes(parser: argparse._ActionsContainer) -> None:
    """Add the options for the sizes that a model leaves open."""
    parser.add_argument("--batch", type=positive, metavar="N", help="size of a first dimension left open (default: 1)")
    parser.add_argument(
        "--shape", type=_shape, action="append", default=[], metavar="NAME=D,D,...", help="shape of an input left open"
    )


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, separator, dims = text.rpartition("=")
    if not separator or not all(size.isdecimal() for size in dims.split(",")):
        raise argparse.ArgumentTypeError(f"expected NAME=D,D,..., got {text}")
    return name, tuple(int(size) for size in dims.split(","))


def _near(path: Path) -> str:
    try:
        names = {each.stem: each for each in islice(path.parent.iterdir(), _MOST_NAMES) if each.suffix == path.suffix}
    except OSError:
        return ""
    found = nearest(path.stem, names)
    return "" if found is None else f"; the nearest name is {names[found]}"

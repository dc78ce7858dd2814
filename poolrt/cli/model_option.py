"""The argument MODEL.onnx of the commands that read a model, and their options for what a model leaves open."""

from __future__ import annotations

import argparse
import re
from itertools import islice
from pathlib import Path
from typing import Any, Final

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


def add_open(parser: argparse._ActionsContainer) -> None:
    """Add the options for the sizes that a model leaves open, and for inputs that are known while it is loaded."""
    parser.add_argument("--batch", type=positive, metavar="N", help="size of a first dimension left open (default: 1)")
    parser.add_argument(
        "--shape", type=_shape, action="append", default=[], metavar="NAME=D,D,...", help="shape of an input left open"
    )
    parser.add_argument(
        "--value",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="input that is known while the model is loaded, such as axes: numbers (1,2,3) or a .npy, .npz or .pb file",
    )


def open_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `poolrt.load_onnx` that the options of `add_open` give. Raises UsageError."""
    values: dict[str, Any] = {}
    for assignment in options.value:
        name, value = _known_value(assignment)
        if name in values:
            raise UsageError(f"--value {name}: given twice")
        values[name] = value
    return {"batch": options.batch, "shapes": dict(options.shape), "values": values}


def _known_value(assignment: str) -> tuple[str, Any]:
    """Return the name and value in ``NAME=VALUE``: the arrays of a file, else numbers; names may contain equals signs."""
    places = [place for place, letter in enumerate(assignment) if letter == "=" and place]
    for place in places:
        path = Path(assignment[place + 1 :])
        if path.suffix and path.is_file():
            return assignment[:place], _array_of(assignment[:place], path)
    name, _, text = assignment.rpartition("=")
    words = text.removesuffix(",").split(",")
    try:
        numbers = [_number(word.strip()) for word in words]
    except ValueError:
        numbers = []
    if not name or not numbers:
        reason = "" if not name else f"; {text} is neither a file nor a list of numbers"
        raise UsageError(f"--value {assignment}: expected NAME=1,2,3 or NAME=FILE.npy{reason}")
    return name, numbers if "," in text else numbers[0]


def _array_of(name: str, path: Path) -> Any:
    from poolrt.cli.run.tensor_file import read_headers, read_tensor

    found = read_headers(path)
    if name not in found and len(found) != 1:
        raise UsageError(f"--value {name}: {path} holds {len(found)} arrays, and none of this name")
    source = name if name in found else next(iter(found))
    return read_tensor(path, source, found[source])


def _number(word: str) -> int | float | bool:
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    try:
        return int(word)
    except ValueError:
        return float(word)


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

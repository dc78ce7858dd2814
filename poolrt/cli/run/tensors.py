"""The tensors of a run: inputs, expected outputs, results."""

from __future__ import annotations

import zipfile
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from poolrt.cachestore.deferred_dataclass import dataclass
from poolrt.cli.report import JobFailed, UsageError
from poolrt.spelling import hint

from .tensor_file import Array, Header, read_headers, read_tensor

#: Bytes of the widest number.
_MOST_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Port:
    """Name, shape and data type of a graph's input or output."""

    name: str
    dims: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}{list(self.dims)}"


def read_inputs(assignments: Sequence[str], seed: int | None, ports: Sequence[Port]) -> dict[str, Array]:
    """Return a value for each input of a graph: from ``NAME=FILE``, the rest random if there is a seed.

    From a file with several arrays, the one with the input's name is taken. Random inputs are standard normal, or 0 and 1
    for integers and booleans. One generator, ``numpy.random.default_rng(seed)``, draws all in the graph's order, so that
    another program can draw the same. Raises UsageError for an unknown name, a missing value, an unreadable file, a wrong
    shape or data type.
    """
    known = {port.name: port for port in ports}
    values: dict[str, Array] = {}
    for assignment in assignments:
        name, path = _name_and_file(assignment, known)
        if name not in known:
            raise UsageError(
                f"--input {name}: the model has no such input; it has {_listing(ports)}{hint(name, known)}"
            )
        if name in values:
            raise UsageError(f"--input {name}: given twice")
        found = read_headers(path)
        if name not in found and len(found) != 1:
            raise UsageError(f"--input {name}: {path} holds no array of this name; it holds {_names(found)}")
        source = name if name in found else next(iter(found))
        _check(found[source], known[name], path)
        values[name] = read_tensor(path, source, found[source]).astype(known[name].dtype, copy=False)
    if seed is not None:
        generator = np.random.default_rng(seed)
        for port in ports:
            values.setdefault(port.name, _drawn(generator, port))
    missing = [port for port in ports if port.name not in values]
    if missing:
        raise UsageError(f"no value for {_listing(missing)}: give --input NAME=FILE or --random-inputs SEED")
    return values


def read_expected(
    path: Path,
    outputs: Sequence[str],
    inputs: Sequence[str] = (),
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> dict[str, Array]:
    """Return the expected outputs in a file, by name.

    Arrays with names of ``inputs`` are ignored. A single array of another name, or without one, is the output of a model
    with one output. Raises UsageError for a file that is unreadable, has no numbers, or does not determine the output, and
    JobFailed for an array of another shape than the model's output has, before its data are read.
    """
    found = read_headers(path)
    wanted = {name: name for name in found if name in outputs}
    if not wanted and len(found) == len(outputs) == 1:
        wanted = {outputs[0]: next(iter(found))}
    strangers = [name for name in found if name not in outputs and name not in inputs]
    if not wanted or (strangers and len(found) > 1):
        raise UsageError(
            f"--expect {path}: holds {_names(strangers or found)}; expected arrays named as the model's outputs, "
            f"{', '.join(outputs)}"
        )
    for name, source in wanted.items():
        header = found[source]
        if not _is_numeric(header.dtype):
            raise UsageError(f"--expect {path}: {name} holds {header.dtype}, not numbers")
        if shapes is not None:
            _check_shape(name, shapes[name], header.dims)
    return {name: read_tensor(path, source, found[source]) for name, source in wanted.items()}


def compare(results: Mapping[str, Array], expected: Mapping[str, Array], rtol: float, atol: float) -> float:
    """Return the largest absolute error over all expected outputs.

    Raises JobFailed, with the output's name, if a shape differs, if only one of two values is NaN, or if
    ``|result - expected| > atol + rtol * |expected|``.
    """
    largest = 0.0
    for name, wanted in expected.items():
        result = results[name]
        _check_shape(name, result.shape, wanted.shape)
        have, want = result.astype(np.float64), wanted.astype(np.float64)
        # Equal infinities and two NaNs have no error; an infinite limit accepts no other infinite error.
        same = (have == want) | (np.isnan(have) & np.isnan(want))
        with np.errstate(invalid="ignore"):
            error = np.where(same, 0.0, np.abs(have - want))
            bad = ~same & ~(np.isfinite(error) & (error <= atol + rtol * np.abs(want)))
        if bad.any():
            place = np.unravel_index(int(np.argmax(np.where(bad, np.nan_to_num(error, nan=np.inf), -1.0))), error.shape)
            raise JobFailed(
                f"output {name} differs from the expected one in {int(bad.sum())} of {bad.size} values, by "
                f"{error[place]:.3g} at most, at {[int(index) for index in place]}: got {have[place]:.9g}, expected "
                f"{want[place]:.9g} (rtol {rtol:g}, atol {atol:g})"
            )
        largest = max(largest, float(error.max(initial=0.0)))
    return largest


def save(path: Path, results: Mapping[str, Array]) -> None:
    """Write results as an ``.npz`` file, in full or not at all. Raises JobFailed if the file cannot be written."""
    draft = path.with_name(f".{path.name}.part")
    try:
        # numpy.savez would mistake an output with the name of one of its arguments.
        with zipfile.ZipFile(draft, "w") as archive:
            for name, array in results.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        draft.replace(path)
    except OSError as error:
        raise JobFailed(f"--save {path}: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)


def top(result: Array, count: int) -> list[tuple[int, float]]:
    """Return the ``count`` largest values of one output and their flat indices, largest first."""
    flat = result.reshape(-1)
    order = np.argsort(-flat, kind="stable")[:count]
    return [(int(index), float(flat[index])) for index in order]


def _drawn(generator: np.random.Generator, port: Port) -> Array:
    kind = np.dtype(port.dtype)
    if kind.kind == "f":
        return generator.standard_normal(port.dims).astype(kind)
    return generator.integers(0, 2, port.dims).astype(kind)


def _listing(ports: Sequence[Port]) -> str:
    return ", ".join(str(port) for port in ports)


def _names(found: Iterable[str]) -> str:
    names = [name or "an array without a name" for name in found]
    return ", ".join(names) or "no array"


def _name_and_file(assignment: str, known: Container[str]) -> tuple[str, Path]:
    """Split ``NAME=FILE`` into a known name and, if possible, an existing file; both may contain equals signs."""
    places = [place for place, letter in enumerate(assignment) if letter == "="]
    splits = [(assignment[:place], Path(assignment[place + 1 :])) for place in reversed(places)]
    splits = [(name, path) for name, path in splits if path.name]
    if not splits:
        raise UsageError(f"--input {assignment}: expected NAME=FILE")
    fitting = [split for split in splits if split[0] in known] or splits[-1:]
    return next((split for split in fitting if split[1].is_file()), fitting[0])


def _is_numeric(dtype: np.dtype[Any]) -> bool:
    if dtype.kind != "V" or dtype.itemsize > _MOST_BYTES:
        return dtype.kind in "biuf"
    try:
        np.zeros(1, dtype).astype(np.float64)  # types of the ml_dtypes package: numbers, but of kind V to NumPy
    except (TypeError, ValueError):
        return False
    return True


def _check_shape(name: str, has: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if has != expected:
        raise JobFailed(f"output {name} has shape {list(has)}, expected {list(expected)}")


def _check(header: Header, port: Port, source: Path) -> None:
    if header.dtype.newbyteorder("=") != np.dtype(port.dtype):
        raise UsageError(f"--input {port.name}: {source} holds {header.dtype}, the model expects {port.dtype}")
    if header.dims != port.dims:
        raise UsageError(
            f"--input {port.name}: {source} has shape {list(header.dims)}, the model expects {list(port.dims)}"
        )

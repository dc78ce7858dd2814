"""Tensors that come from and go to files: inputs, expected outputs, results.

NumPy's own formats are read without pickle; ``.pb`` files are ONNX ``TensorProto`` messages, as in ONNX's test data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.cli.report import JobFailed, UsageError

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Port:
    """What a graph says of one of its inputs or outputs."""

    name: str
    dims: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}{list(self.dims)}"


def read_inputs(assignments: Sequence[str], seed: int | None, ports: Sequence[Port]) -> dict[str, Array]:
    """Return a value for each input of a graph: from ``NAME=FILE``, the rest random where there is a seed.

    Random inputs are standard normal, drawn in the graph's order from ``numpy.random.default_rng(seed)``, one generator
    for all, so that another program can make the same ones. Raises UsageError for an unknown name, a missing value, an
    unreadable file, a wrong shape or data type.
    """
    known = {port.name: port for port in ports}
    values: dict[str, Array] = {}
    for assignment in assignments:
        name, separator, path = assignment.rpartition("=")
        if not separator or not path:
            raise UsageError(f"--input {assignment}: expected NAME=FILE.npy")
        if name not in known:
            raise UsageError(f"--input {name}: the model has no such input; it has {_listing(ports)}")
        if name in values:
            raise UsageError(f"--input {name}: given twice")
        values[name] = _checked(_read_named(Path(path))[1], known[name], path)
    if seed is not None:
        generator = np.random.default_rng(seed)
        for port in ports:
            drawn = generator.standard_normal(port.dims).astype(port.dtype)
            values.setdefault(port.name, drawn)
    missing = [port for port in ports if port.name not in values]
    if missing:
        raise UsageError(f"no value for {_listing(missing)}: give --input NAME=FILE.npy or --random-inputs SEED")
    return values


def read_expected(path: Path, outputs: Sequence[str]) -> dict[str, Array]:
    """Return expected outputs by name: all of an ``.npz`` file, or the one tensor of a ``.pb`` or ``.npy`` file.

    A single tensor without one of the outputs' names stands for the first output. Raises UsageError for a file that
    cannot be read or names an output that the model does not have.
    """
    if path.suffix == ".npz":
        found = _read_archive(path)
        unknown = sorted(set(found) - set(outputs))
        if unknown or not found:
            said = f"names {', '.join(unknown)}" if unknown else "holds no array"
            raise UsageError(f"--expect {path}: {said}; the model's outputs are {', '.join(outputs)}")
        return found
    name, array = _read_named(path)
    return {name if name in outputs else outputs[0]: array}


def compare(results: Mapping[str, Array], expected: Mapping[str, Array], rtol: float, atol: float) -> float:
    """Return the largest absolute error over all expected outputs.

    Raises JobFailed, naming the output, where a shape differs, where one is NaN and the other is not, and where
    ``|result - expected| > atol + rtol * |expected|``.
    """
    largest = 0.0
    for name, wanted in expected.items():
        result = results[name]
        if result.shape != wanted.shape:
            raise JobFailed(f"output {name} has shape {list(result.shape)}, expected {list(wanted.shape)}")
        have, want = result.astype(np.float64), wanted.astype(np.float64)
        # Equal infinities and two NaNs differ by nothing; an infinite limit lets nothing else pass.
        same = (have == want) | (np.isnan(have) & np.isnan(want))
        with np.errstate(invalid="ignore"):
            error = np.where(same, 0.0, np.abs(have - want))
            bad = ~same & ~(np.isfinite(error) & (error <= atol + rtol * np.abs(want)))
        if bad.any():
            place = np.unravel_index(int(np.argmax(np.where(bad, np.nan_to_num(error, nan=np.inf), -1.0))), error.shape)
            raise JobFailed(
                f"output {name} differs from what is expected in {int(bad.sum())} of {bad.size} values; at "
                f"{[int(index) for index in place]} it is {have[place]:.9g}, expected {want[place]:.9g} "
                f"(rtol {rtol:g}, atol {atol:g})"
            )
        largest = max(largest, float(error.max(initial=0.0)))
    return largest


def save(path: Path, results: Mapping[str, Array]) -> None:
    """Write results as an ``.npz`` file, in full or not at all. Raises JobFailed where the file cannot be written."""
    draft = path.with_name(f".{path.name}.part")
    try:
        with draft.open("wb") as file:
            np.savez(file, allow_pickle=False, **dict(results))
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise JobFailed(f"--save {path}: {error.strerror}") from error


def top(result: Array, count: int) -> list[tuple[int, float]]:
    """Return the ``count`` largest values of one output and their flat indices, largest first."""
    flat = result.reshape(-1)
    order = np.argsort(-flat, kind="stable")[:count]
    return [(int(index), float(flat[index])) for index in order]


def _listing(ports: Sequence[Port]) -> str:
    return ", ".join(str(port) for port in ports)


def _checked(array: Array, port: Port, source: str) -> Array:
    if array.dtype != np.dtype(port.dtype):
        raise UsageError(f"--input {port.name}: {source} holds {array.dtype}, the model wants {port.dtype}")
    if array.shape != port.dims:
        raise UsageError(
            f"--input {port.name}: {source} has shape {list(array.shape)}, the model wants {list(port.dims)}"
        )
    return array


def _read_named(path: Path) -> tuple[str, Array]:
    if path.suffix == ".pb":
        return _read_proto(path)
    try:
        # Opened here: NumPy leaves a file open that it cannot read.
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or 'cannot be read'}") from error
    except Exception as error:
        # A damaged file makes NumPy or tokenize raise whatever they meet.
        raise UsageError(f"{path}: not an array file of NumPy: {error}") from error
    if not isinstance(loaded, np.ndarray):
        loaded.close()
        raise UsageError(f"{path}: holds several arrays; expected one, as written by numpy.save")
    return "", loaded


def _read_archive(path: Path) -> dict[str, Array]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files}
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or 'cannot be read'}") from error
    except Exception as error:
        # A damaged file makes NumPy, zipfile, zlib or tokenize raise whatever they meet.
        raise UsageError(f"{path}: not an archive of NumPy arrays: {error}") from error
    strangers = [name for name, member in found.items() if not isinstance(member, np.ndarray)]
    if strangers:
        raise UsageError(f"{path}: not an archive of NumPy arrays: it holds {', '.join(strangers)}")
    return found


def _read_proto(path: Path) -> tuple[str, Array]:
    try:
        import onnx
        from google.protobuf.message import DecodeError
        from onnx import numpy_helper
    except ModuleNotFoundError as error:
        raise UsageError(f"{path}: reading .pb files needs the onnx package: pip install 'poolrt[onnx]'") from error
    tensor = onnx.TensorProto()
    try:
        tensor.ParseFromString(path.read_bytes())
        return tensor.name, numpy_helper.to_array(tensor)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or 'cannot be read'}") from error
    except (DecodeError, ValueError, TypeError) as error:
        raise UsageError(f"{path}: not an ONNX tensor: {error}") from error

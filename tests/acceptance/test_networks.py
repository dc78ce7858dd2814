"""The nine networks on the command line compute the results of ONNX Runtime, with any weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from poolrt import models

from .conftest import NetworkMaker
from .networks import LIGHT, SMALL
from .surroundings import Surroundings

#: Forms of files, so that each is read in earnest by one network or another.
FORMS = ("npy", "npz", "named npz", "pb")
#: Networks on OpenCL.
OPENCL = ("shufflenet", "squeezenet")


def write(path: Path, form: str, name: str, array: NDArray[np.float32]) -> Path:
    """Write an array to a file of some form; the name is kept where the form has names, unless that is ``npz``."""
    path = path.with_suffix(f".{form.split()[-1]}")
    if form == "npy":
        np.save(path, array)
    elif form == "npz":
        np.savez(path, array)
    elif form == "pb":
        path.write_bytes(onnx.numpy_helper.from_array(array, name).SerializeToString())
    else:
        np.savez(
            path, allow_pickle=False, **{name: array, "beside": np.zeros(2)} if path.stem == "x" else {name: array}
        )
    return path


# By default, `test_make_run.py` runs one of them, and the test below compares a small network with ONNX Runtime.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "form"),
    [(name, FORMS[i % len(FORMS)]) for i, name in enumerate(models.NAMES)],
)
def test_a_seeded_network_gives_what_is_stored_of_onnx_runtime(
    warm: Surroundings, tmp_path: Path, name: str, form: str
) -> None:
    expected = models.load_expected(name)
    model = models.write(name, tmp_path / f"{name}.onnx")
    ((input_name, x),) = expected.inputs().items()
    x_file, y_file = (
        write(tmp_path / s, form, n, a)
        for s, n, a in (("x", input_name, x), ("y", expected.output_name, expected.output))
    )
    found = warm.json("run", model, "--input", f"{input_name}={x_file}", "--expect", y_file)
    model.unlink()
    assert found["outputs"] == {expected.output_name: {"shape": list(expected.output.shape), "dtype": "float32"}}
    assert 0 < found["max_abs_error"] < 1e-5
    assert not any(worker["numba_imported"] for worker in found["workers"])


@pytest.mark.parametrize("name", [SMALL, *(pytest.param(name, marks=pytest.mark.slow) for name in LIGHT)])
def test_a_network_with_other_weights_is_right_and_needs_no_other_kernels(
    warm: Surroundings, network: NetworkMaker, name: str
) -> None:
    # Given kernels that were created for another model of the same shapes, or are now
    made = network(name)
    words = made.words()
    warm.json(*words)
    # When a model with other weights is run
    found = warm.json(*words, "--save", warm.folder / "out.npz")
    # Then nothing is created for it, and the result is that of ONNX Runtime by NumPy's measure, too
    assert found["primitives"]["created"] == 0
    with np.load(warm.folder / "out.npz") as saved:
        np.testing.assert_allclose(saved[made.output_name], made.y, rtol=1e-3, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("name", [SMALL, *OPENCL])
def test_a_network_on_opencl_is_right_cold_and_warm(warm: Surroundings, network: NetworkMaker, name: str) -> None:
    words = (*network(name).words(), "--engine", "opencl")
    warm.json(*words)
    found = warm.json(*words)
    assert found["engine"] == "opencl"
    assert found["primitives"]["created"] == 0

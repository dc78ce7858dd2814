"""The nine networks: reproducible weights, and graphs that compute what ONNX Runtime computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from poolrt import ModelError, load_onnx, models
from poolrt.models import light
from poolrt.models.seeded import fingerprint, spread, uniform
from tests.poolrt.graph.interpreter import run_wire

SMALL = ("squeezenet", "shufflenet")
LARGE = tuple(name for name in models.NAMES if name not in SMALL)


def compare(name: str, optimize: bool) -> None:
    expected = models.load_expected(name)
    graph = load_onnx(models.build(name))
    output = run_wire(*graph.to_wire(optimize), expected.inputs())[expected.output_name]
    # ONNX Runtime computes in float32: 2e-6 of the largest value is what it is away from float64 at most.
    assert expected.error(output.astype(np.float32)) <= 2e-6 * float(np.abs(expected.output).max())


@pytest.mark.parametrize("name", SMALL)
def test_an_imported_network_computes_what_onnx_runtime_does(name: str) -> None:
    compare(name, optimize=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_an_imported_large_network_computes_what_onnx_runtime_does(name: str) -> None:
    compare(name, optimize=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SMALL, "inception_v2", "resnet50"])
def test_a_network_that_is_not_optimised_computes_the_same(name: str) -> None:
    compare(name, optimize=False)


@pytest.mark.parametrize("name", models.NAMES)
def test_an_expected_output_tells_right_from_wrong(name: str) -> None:
    output = models.load_expected(name).output
    assert len(np.unique(output)) > 800
    assert np.isfinite(output).all()
    assert output.max() < 0.95


def test_seeded_values_never_change() -> None:
    # The raw stream is promised by NumPy, the rest is exact arithmetic. With a change here no expected output fits.
    assert uniform(0, (5,), 0.0, 1.0).tolist() == pytest.approx(uniform(0, (6,), 0.0, 1.0)[:5].tolist(), abs=0)
    values = spread(1, (100_000,), 2.0)
    assert abs(float(values.std()) - 2.0) < 0.02
    assert abs(float(values.mean())) < 0.02
    assert fingerprint([("a", spread(7, (3, 5), 1.0))]) == (
        "72cb595aebde2dbce10e02964521c16113a6942edaf73e70b218d652f07aaeea"
    )


def test_a_written_network_loads_from_its_file(tmp_path: Path) -> None:
    path = models.write("squeezenet", tmp_path / "squeezenet.onnx")
    graph = load_onnx(path)
    assert graph.name == "squeezenet"
    assert graph.inputs == {"data_0": (1, 3, 224, 224)}
    assert graph.outputs == {"softmaxout_1": (1, 1000, 1, 1)}


def test_weights_other_than_the_expected_ones_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poolrt.models.seeded.SEED", 1)
    with pytest.raises(ModelError, match="squeezenet: the seeded weights differ from those its expected output"):
        light.build("squeezenet")


def test_an_unknown_network_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown network 'lenet'; known: alexnet, densenet121"):
        models.build("lenet")
    with pytest.raises(ValueError, match="there is no expected output for 'lenet'; known: alexnet"):
        models.load_expected("lenet")


def test_an_output_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expect shape \(1, 1000\), got \(1000,\)"):
        models.load_expected("resnet50").error(np.zeros(1000, np.float32))


def test_a_stored_network_is_written_once_in_full_into_a_private_folder(tmp_path: Path) -> None:
    path = models.provide("squeezenet", tmp_path / "new" / "models")
    written = path.stat().st_mtime_ns
    assert path.read_bytes() == models.build("squeezenet").SerializeToString()
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert models.provide("squeezenet", path.parent) == path
    assert path.stat().st_mtime_ns == written
    assert list(path.parent.iterdir()) == [path]


def test_a_network_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken.onnx").mkdir()
    with pytest.raises(OSError):
        models.write("squeezenet", tmp_path / "taken.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["taken.onnx"]

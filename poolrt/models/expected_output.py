"""Sample inputs and the outputs that ONNX Runtime computed from them, stored in this package."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from poolrt.cachestore.deferred_dataclass import dataclass

from .seeded import spread

FOLDER: Final = Path(__file__).parent / "outputs"
_INPUT_SHAPE: Final = (1, 3, 224, 224)
_INPUT_STREAM: Final = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """The output that a network should compute from its sample input; ``fingerprint`` is that of its weights."""

    input_name: str
    output_name: str
    output: NDArray[np.float32]
    fingerprint: str

    def inputs(self) -> dict[str, NDArray[np.float32]]:
        """Return the sample input by name: (1, 3, 224, 224), mean 0, standard deviation 1."""
        return {self.input_name: sample_input()}

    def error(self, output: NDArray[np.float32]) -> float:
        """Return the largest absolute error of an output. Raises ValueError if its shape is wrong."""
        if output.shape != self.output.shape:
            raise ValueError(f"output {self.output_name!r}: expect shape {self.output.shape}, got {output.shape}")
        return float(np.max(np.abs(output.astype(np.float64) - self.output)))


def sample_input() -> NDArray[np.float32]:
    """Return the sample input, which is the same for every network."""
    return spread(_INPUT_STREAM, _INPUT_SHAPE, 1.0)


def load_expected(name: str) -> Expected:
    """Return the sample input and expected output of a network. Raises ValueError for an unknown name."""
    path = FOLDER / f"{name}.npz"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in FOLDER.glob("*.npz")))
        raise ValueError(f"there is no expected output for {name!r}; known: {known}")
    with np.load(path, allow_pickle=False) as stored:
        return Expected(
            str(stored["input_name"]), str(stored["output_name"]), stored["output"], str(stored["fingerprint"])
        )


def store(name: str, value: Expected) -> Path:
    """Write the expected output of a network into this package and return the file."""
    path = FOLDER / f"{name}.npz"
    np.savez_compressed(
        path,
        input_name=np.array(value.input_name),
        output_name=np.array(value.output_name),
        output=value.output,
        fingerprint=np.array(value.fingerprint),
    )
    return path

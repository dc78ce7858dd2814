"""Rows that NonMaxSuppression chooses: which of them may stand in another order.

Boxes are chosen in the order of their scores. Scores that differ by less than the tolerance are equal for a comparison, so two
chosen rows may change places if theirs do, relative to the larger one. Each pair of rows whose order is another one is
judged, not only neighbours. Rows of different images or classes never change places, and all rows must be there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]

#: Operators that keep the rows of what they read, if each row of their result has one number or three.
_KEEP_ROWS: Final = frozenset({"Cast", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze"})


@dataclass(frozen=True, slots=True)
class Choice:
    """What a NonMaxSuppression node reads and chooses."""

    scores: Array
    rows: Array

    def moved(self, found: Array, wanted: Array, tolerance: float) -> int | None:
        """Return how many rows of an output stand elsewhere; None if one of them may not."""
        there, here = self._whole(wanted), self._whole(found)
        if there is None or here is None or here.shape != there.shape:
            return None
        place = {tuple(row): index for index, row in enumerate(there.tolist())}
        places = [place.get(tuple(row), -1) for row in here.tolist()]
        if sorted(places) != list(range(len(there))):
            return None
        order = np.array(places, np.int64)
        scores = self.scores[tuple(here.T)].astype(np.float64)
        first, second = np.triu_indices(len(order), 1)
        swapped = order[first] > order[second]
        first, second = first[swapped], second[swapped]
        apart = np.abs(scores[first] - scores[second])
        near = apart < tolerance * np.maximum(np.abs(scores[first]), np.abs(scores[second]))
        alike = (here[first, :2] == here[second, :2]).all(axis=1)
        if not bool((alike & (near | (apart == 0))).all()):
            return None
        return int((order != np.arange(len(order))).sum())

    def _whole(self, output: Array) -> Array | None:
        """Return image, class and box of each row of an output; None if it is no list of these rows or boxes."""
        if output.dtype != np.int64:
            return None
        if output.ndim == 2 and output.shape[1] == 3:
            return output if self._exists(output) else None
        alone = len(np.unique(self.rows[:, :2], axis=0)) == 1
        if output.ndim != 1 or not alone:
            return None
        whole = np.concatenate([np.repeat(self.rows[:1, :2], len(output), 0), output[:, None]], 1)
        return whole if self._exists(whole) else None

    def _exists(self, rows: Array) -> bool:
        return bool(((rows >= 0) & (rows < np.array(self.scores.shape))).all())


def choices_of(path: Path, feeds: Arrays) -> dict[str, Choice]:
    """Return the choice that each output of a model lists, with the scores that ONNX Runtime computes."""
    model = onnx.load(path, load_external_data=False)
    listed = _listed(model.graph)
    nodes = {each.output[0]: each for each in model.graph.node if each.op_type == "NonMaxSuppression"}
    wanted = sorted({name for source in listed.values() for name in (source, nodes[source].input[1])})
    if not wanted:
        return {}
    onnx.load_external_data_for_model(model, str(path.parent))
    outputs = {each.name for each in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted if name not in outputs)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    known = dict(zip(wanted, session.run(wanted, feeds), strict=True))
    return {name: Choice(known[nodes[source].input[1]], known[source]) for name, source in listed.items()}


def _listed(graph: onnx.GraphProto) -> dict[str, str]:
    """Return the outputs that list the rows or boxes of a NonMaxSuppression node, with the name of its result."""
    sources: dict[str, str] = {}
    for node in graph.node:
        if node.op_type == "NonMaxSuppression":
            sources[node.output[0]] = node.output[0]
        elif node.op_type in _KEEP_ROWS and node.input[0] in sources:
            sources[node.output[0]] = sources[node.input[0]]
    return {each.name: sources[each.name] for each in graph.output if each.name in sources}

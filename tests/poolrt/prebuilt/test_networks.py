"""The networks whose kernels are prebuilt."""

from __future__ import annotations

from pathlib import Path

from poolrt import Graph
from poolrt.prebuilt.collection import Collection, usual_targets
from poolrt.prebuilt.networks import graphs

ROOT = Path(__file__).resolve().parents[3]


def test_readmes_first_example_needs_only_kernels_that_are_prebuilt() -> None:
    # Given the graph of the example, and the kernels of networks like it
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    program = page.partition("\n## Ten lines\n")[2].partition("```python\n")[2].partition("\nwith ")[0]
    names: dict[str, object] = {}
    exec(program, names)
    graph = names["g"]
    assert isinstance(graph, Graph)
    prebuilt, needed = Collection(usual_targets()), Collection(usual_targets())
    for name, build in graphs():
        if name.startswith("perceptron"):
            prebuilt.add(build())
    # When its own kernels are collected, then there are no others
    needed.add(graph)
    assert needed.kernels
    assert needed.kernels.keys() <= prebuilt.kernels.keys()

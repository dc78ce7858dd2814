"""The making of the file of prebuilt kernels: what was compiled is not compiled again, whatever ended the call."""

from __future__ import annotations

from pathlib import Path

import pytest

from poolrt import Graph
from poolrt.cachestore.prebuilt import PrebuiltFile, write_prebuilt
from poolrt.prebuilt.collection import Collection
from poolrt.prebuilt.making import make
from poolrt.workers.engines.target import cpu_target


def _kernels() -> Collection:
    graph = Graph("relu")
    graph.output("y", graph.eltwise(graph.input("x", (3, 40)), "relu"))
    kernels = Collection([cpu_target()])
    kernels.add(graph)
    return kernels


def _interrupt(done: int, of: int) -> None:
    assert 0 < done < of
    raise KeyboardInterrupt


def test_an_interrupted_making_goes_on_from_what_it_has_compiled(tmp_path: Path) -> None:
    # Given a file with a kernel of another collection, and an interrupt after the first primitive
    path, other = str(tmp_path / "kernels.parts"), {"0" * 64: b"of another collection"}
    write_prebuilt(path, other, {})
    kernels = _kernels()
    wanted = {key.digest for key in kernels.kernels}
    with pytest.raises(KeyboardInterrupt):
        make(path, kernels, _interrupt)
    # Then the file has what it had, and the kernels of that primitive
    held = dict(PrebuiltFile(path).parts())
    assert other.items() < held.items()
    assert held.keys() - other.keys() < wanted
    # And the next call compiles the rest
    made = make(path, kernels)
    assert (made.kernels, made.compiled) == (len(wanted), len(wanted) - len(held) + 1)
    finished = dict(PrebuiltFile(path).parts())
    assert finished.keys() == wanted
    assert held.items() - other.items() < finished.items()

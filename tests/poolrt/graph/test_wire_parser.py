"""The parser of the wire form: it gives back what was sent, and refuses everything else by one error."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrt import Graph, GraphError
from poolrt.graph.errors import LoweringError
from poolrt.graph.inference.attributes import attribute_types
from poolrt.graph.lower import lower
from poolrt.graph.wire_parser import parse

from .every_operation import OPERATIONS, graph_of
from .lowering import CPU


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def test_a_parsed_graph_is_the_graph_that_was_sent() -> None:
    g = Graph("g", "opencl")
    x = g.convolution(g.input("x", (1, 4, 8, 8)), ones(4, 4, 1, 1), scales={"src": 0.5})
    g.output("y", g.eltwise(g.slice(g.binary(x, x, "add"), 0, 3, 2), "relu", engine="cpu"))
    wire, constants = g.to_wire(optimize=False)
    parsed, ir = parse(msgpack.unpackb(msgpack.packb(wire))), g.to_ir()
    assert (parsed.name, parsed.engine) == (ir.name, ir.engine) == ("g", "opencl:0")
    assert [node.kind for node in parsed.nodes] == [node.kind for node in ir.nodes]
    assert [node.attrs for node in parsed.nodes] == [node.attrs for node in ir.nodes]
    assert [node.quantisation[0].kind for node in parsed.nodes if node.quantisation] == ["scales"]
    assert [parsed.values[value] for value in parsed.constants] == [constant.desc for constant in constants]


MALFORMED: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda wire: wire.update(fpmath_mode="fast"), "fpmath_mode: unknown 'fast'; known: strict, bf16, f16, any"),
    (lambda wire: wire.pop("fpmath_mode"), "WireGraph.fpmath_mode: expected str, got None"),
    (lambda wire: wire["values"][0].__setitem__(1, "f33"), "unknown data type 'f33'"),
    (lambda wire: wire["values"][0].__setitem__(0, [1 << 40, 1 << 40]), "more than"),
    (lambda wire: wire["values"][0].__setitem__(0, [1, 0]), "value 0: dims: expect sizes of at least 1"),
    (lambda wire: wire["values"][0].__setitem__(0, [1.0]), "value 0: WireValue.dims: expected int, got 1.0"),
    (lambda wire: wire["values"].pop(), "value 3 is unknown or defined twice"),
    (lambda wire: wire["constants"][0].__setitem__(1, 5), "bytes, not 5"),
    (lambda wire: wire["nodes"][0].__setitem__(0, "shrink"), "unknown operation 'shrink'"),
    (lambda wire: wire["nodes"][0].__setitem__(2, [99]), "value 99 is read but not defined before"),
    (lambda wire: wire["nodes"][0].__setitem__(3, [99]), "value 99 is unknown or defined twice"),
    (lambda wire: wire["nodes"][0].__setitem__(3, []), "outputs: expect at least one"),
    (lambda wire: wire["nodes"][0].__setitem__(4, {"groups": 1}), "attributes: strides is missing"),
    (lambda wire: wire["nodes"][0].__setitem__(4, []), "node 0: WireNode.attrs: expected dict"),
    (lambda wire: wire["nodes"][0].__setitem__(5, [["shift", "relu", 0.0, 0.0]]), "unknown post-op kind 'shift'"),
    (
        lambda wire: wire["nodes"][0].__setitem__(5, [["eltwise", "relu"]]),
        ".convolution.: post_ops: expected .* got 2 values",
    ),
    (lambda wire: wire["nodes"][0].__setitem__(6, [["scales", 41, 0, 0]]), "takes no scales"),
    (lambda wire: wire["nodes"][0].__setitem__(6, [["scale", 1, 0, 0]]), "unknown 'scale'; known: scales, zero_points"),
    (lambda wire: wire["nodes"][0].__setitem__(7, "gpu"), "engine: "),
    (lambda wire: wire["nodes"][0].pop(), "node 0: expected WireNode.kind, .* got 8 values"),
    (lambda wire: wire["values"][2].__setitem__(0, [1, 8, 6, 7]), "dst: expect f32:abcd:1x8x6x6"),
    (lambda wire: wire["nodes"][1][4].update(starts=[0, 0, 4, 0]), "ends: 4:3 leaves nothing of dimension 2"),
    (lambda wire: wire["nodes"][1][4].update(ends=[9, 9, 4, 9]), "dst: expect f32:abcd:1x8x4x6, got f32:abcd:1x8x3x6"),
    (lambda wire: wire["nodes"][1][4].update(steps=[1, 1, 0, 1]), "steps: expect at least 1, got 0"),
    (lambda wire: wire["nodes"][1][4].update(starts=[0], ends=[1], steps=[1]), "starts: expect 4 values"),
    (
        lambda wire: wire["nodes"][1][4].update(starts="zero"),
        ".slice.: attributes: starts: expected list, got 'zero'",
    ),
    (lambda wire: wire["nodes"][1][4].update(colour=1), "attributes: unknown 'colour'; known: starts, ends, steps"),
    (lambda wire: wire["nodes"][0][2].append(1), "inputs: expect 2 operands, got 3|bias: expect"),
    (lambda wire: wire["nodes"][0].__setitem__(6, [["scales", 1, 1, 1]]), "scales: expect .1,. for argument 1"),
    (lambda wire: wire["nodes"][0].__setitem__(5, [["binary", "add", 1]]), "src1: shapes"),
    (lambda wire: wire["nodes"].reverse(), "value 2 is read but not defined before"),
    (lambda wire: wire["outputs"].append(["z", 7]), "value 7 is read but not defined before"),
    (lambda wire: wire.pop("nodes"), "WireGraph.nodes: expected list, got None"),
]


@pytest.mark.parametrize(
    ("damage", "expected"), MALFORMED, ids=[f"{n} {text}" for n, (_, text) in enumerate(MALFORMED)]
)
def test_a_wire_that_makes_no_sense_is_refused(damage: Callable[[dict[str, Any]], object], expected: str) -> None:
    g = Graph("g")
    x = g.convolution(g.input("x", (1, 4, 8, 8)), ones(8, 4, 3, 3))
    g.output("y", g.slice(x, 0, 3, 2))
    wire = copy.deepcopy(g.to_wire()[0])
    parse(copy.deepcopy(wire))
    damage(wire)
    with pytest.raises(GraphError, match=f"^malformed graph: .*({expected})"):
        parse(wire)


def test_a_tensor_that_no_process_can_address_is_refused_without_a_wire_too() -> None:
    g = Graph("g")
    g.output("y", g.eltwise(g.input("x", (1 << 40, 1 << 10)), "relu"))
    with pytest.raises(LoweringError, match="bytes, more than"):
        lower(g.to_ir(), {"cpu": CPU})


_ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-(2**63), -2, -1, 0, 1, 2, 3, 7, 2**31, 2**47, 2**63 - 1, 2**64 - 1]),
    st.floats(),
    st.sampled_from(["", "cpu", "gpu", "f32", "bf16", "relu", "add", "any", "ab", "scales", "slice", "backward_data"]),
    st.binary(max_size=2),
    st.lists(st.integers(-2, 9), max_size=5),
    st.dictionaries(st.text(max_size=3), st.integers(-1, 1), max_size=2),
)


def places(data: Any) -> list[tuple[Any, Any]]:
    """Return every place of nested lists and dicts, as the container and the index or key."""
    keys = list(data) if isinstance(data, dict) else list(range(len(data))) if isinstance(data, list) else []
    return [place for key in keys for place in ((data, key), *places(data[key]))]


@pytest.mark.parametrize("examples", [100, pytest.param(600, marks=pytest.mark.slow)])
def test_any_data_are_a_graph_or_a_graph_error(examples: int) -> None:
    @settings(max_examples=examples)
    @given(st.data(), st.sampled_from(sorted(OPERATIONS)), st.integers(1, 3))
    def damage(data: st.DataObject, name: str, faults: int) -> None:
        wire = graph_of(name).to_wire()[0]
        for _ in range(faults):
            found = places(wire)
            container, key = found[data.draw(st.integers(0, len(found) - 1))]
            match data.draw(st.integers(0, 3)):
                case 0:
                    del container[key]
                case 1 if isinstance(container, list):
                    container.insert(key, copy.deepcopy(container[key]))
                case 2 if isinstance(container, list):
                    container.reverse()
                case _:
                    container[key] = data.draw(_ANYTHING)
        try:
            lower(parse(wire), {"cpu": CPU})
        except GraphError as error:
            assert str(error)

    damage()


def test_a_node_may_leave_out_its_optional_attributes() -> None:
    left_out = 0
    for name in OPERATIONS:
        wire = graph_of(name).to_wire()[0]
        for number, node in enumerate(wire["nodes"]):
            for attribute in [each for each, (_, optional) in attribute_types(node[0]).items() if optional]:
                shorter = copy.deepcopy(wire)
                left_out += shorter["nodes"][number][4].pop(attribute, None) is not None
                # The result may be another one, which the graph does not say
                with suppress(GraphError):
                    lower(parse(shorter), {"cpu": CPU})
    assert left_out > 50


@given(
    st.recursive(_ANYTHING, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4))
)
def test_what_is_no_graph_is_a_graph_error(wire: Any) -> None:
    with pytest.raises(GraphError, match=r"^malformed graph: "):
        parse(wire)

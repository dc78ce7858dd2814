"""Device contexts: bounded in bytes, listed, with a place and a stream that execute what is submitted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from poolrt import Arg, DeviceContext, Eltwise, Engine, Executor, Graph, GraphError, Memory, MemoryDesc, Stream
from poolrt.inprocess.compiled_graph import CompiledGraph
from poolrt.inprocess.device_context import CAPACITY_BYTES, InstanceKey
from poolrt.workers.desc import Softmax
from poolrt.workers.primitives.provider import PrimitiveProvider

from .networks import IMAGE, Network, array, close

MIB: Final = 1 << 20


def wide(rows: int = 4) -> Graph:
    graph = Graph("wide")
    graph.output("y", graph.softmax(graph.eltwise(graph.input("x", (rows, 64)), "tanh")))
    return graph


@pytest.mark.slow
@pytest.mark.timeout(420)
@pytest.mark.parametrize(("shapes", "bound", "rows"), [(500, 64, 8), (500, 64, 4096)])
def test_memory_grows_by_the_bound_and_one_iteration(tmp_path: Path, shapes: int, bound: int, rows: int) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.poolrt.inprocess.growth",
        str(tmp_path),
        *map(str, (shapes, bound * MIB, rows)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=True)
    found = json.loads(done.stdout)
    assert found["wrong"] == 0
    assert found["growth"] <= bound * MIB, found
    assert found["counted"] <= bound * MIB, found
    assert found["evicted"] > shapes, found


def test_instances_beyond_the_bytes_are_evicted_and_results_are_right(cache: PrimitiveProvider) -> None:
    context = DeviceContext(capacity_bytes=2 * MIB)
    executor = Executor(wide(), context=context, cache=cache)
    for rows in (4096, 4097, 4096, 4098):
        x = array(rows, 64)
        found = executor.run(x=x)["y"]
        raised = np.exp(np.tanh(x))
        np.testing.assert_allclose(found, raised / raised.sum(1, keepdims=True), rtol=1e-4)
        assert 0 < context.nbytes <= 2 * MIB
    assert context.statistics().evicted > 0
    made = context.statistics().created
    executor.run(x=array(4098, 64))
    assert context.statistics().created == made


def test_an_instance_that_exceeds_the_bytes_by_itself_is_made_once(cache: PrimitiveProvider) -> None:
    context, network = DeviceContext(capacity_bytes=1), Network(1)
    executor = Executor(network.graph, context=context, cache=cache)
    x = array(*IMAGE)
    assert close(executor.run(x=x), network.expected(x))
    made = context.statistics().created
    assert context.statistics().instances == 1
    for _ in range(3):
        assert close(executor.run(x=x), network.expected(x))
    assert context.statistics().created == made


def test_constants_in_use_are_found_again_however_tight_the_bound_is(cache: PrimitiveProvider) -> None:
    # Given room for one shape only
    context, network = DeviceContext(), Network(1)
    executor = Executor(network.graph, context=context, cache=cache)
    executor.run(x=array(*IMAGE))
    constants = sum(key.what == "constant" for key in context.instances())
    context.set_capacity(capacity_bytes=context.nbytes * 8 // 7 + 1)
    # When shapes alternate
    for batch in (1, 2, 1):
        before = context.statistics().created
        other = array(batch, *IMAGE[1:])
        assert close(executor.run(x=other), network.expected(other))
        # Then a graph and its plan are made, and no constant
        assert context.statistics().created - before == 2
    assert constants > 0
    assert context.statistics().evicted >= 3


def test_what_several_instances_share_counts_once(cache: PrimitiveProvider) -> None:
    context = DeviceContext()
    executor = Executor(Network(1).graph, context=context, cache=cache)
    executor.run(x=array(*IMAGE))
    instances = context.instances()
    whole = {id(owner): nbytes for each in instances.values() for owner, nbytes in parts(each)}
    assert context.nbytes == sum(whole.values())
    assert context.nbytes < sum(entry.nbytes for entry in context.contents())
    del executor
    assert (context.nbytes, context.contents()) == (0, [])


def parts(instance: Any) -> list[tuple[object, int]]:
    return [(instance, instance.desc.nbytes)] if isinstance(instance, Memory) else instance.parts()


def test_what_a_context_holds_is_listed(cache: PrimitiveProvider) -> None:
    context = DeviceContext()
    one, other = (
        Executor(wide(), context=context, cache=cache),
        Executor(Network(1).graph, context=context, cache=cache),
    )
    for rows in (2, 3):
        one.run(x=array(rows, 64))
    other.run(x=array(*IMAGE))
    listed = context.contents()
    assert len(listed) == context.statistics().instances
    assert [(e.what, e.shapes) for e in listed if e.graph == "wide" and e.what != "constant"] == [
        ("graph", ((2, 64),)), ("plan", ((2, 64),)), ("graph", ((3, 64),)), ("plan", ((3, 64),)),
    ]  # fmt: skip
    assert {entry.graph for entry in listed} == {"wide", "network"}
    assert all(entry.nbytes > 0 for entry in listed)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "1"])
def test_a_bound_is_an_integer_of_at_least_1(value: Any) -> None:
    assert DeviceContext().capacity_bytes == CAPACITY_BYTES
    for name in ("capacity", "capacity_bytes"):
        with pytest.raises(ValueError, match=f"^{name}: expect at least 1, got "):
            DeviceContext(**{name: value})
        with pytest.raises(ValueError, match=f"^{name}: expect at least 1, got "):
            DeviceContext().set_capacity(**{name: value})


def test_a_smaller_bound_evicts_at_once() -> None:
    context = DeviceContext()
    memories = [Memory(MemoryDesc((1000,), "u8")) for _ in range(4)]
    for number, memory in enumerate(memories):
        context.add(InstanceKey("memory", (number,), (), "me"), memory)
    assert context.nbytes == 4000
    context.set_capacity(capacity_bytes=2700)
    assert (context.nbytes, context.statistics().evicted) == (2000, 2)
    # One that is still in use is found and counts again, until another is added.
    assert context.find(InstanceKey("memory", (0,), (), "me")) is memories[0]
    assert context.nbytes == 3000
    context.add(InstanceKey("memory", (4,), (), "me"), Memory(MemoryDesc((1000,), "u8")))
    assert [key.details for key in context.instances()] == [(0,), (4,)]
    context.set_capacity(1)
    assert context.nbytes == 1000


def test_a_context_executes_what_was_submitted_in_order(cache: PrimitiveProvider) -> None:
    stream = Stream(Engine("cpu"))
    context = DeviceContext(stream=stream)
    assert (context.stream, context.engine) == (stream, stream.engine)
    desc = MemoryDesc((16,), "f32")
    memories = [Memory(desc, context.engine) for _ in range(3)]
    negate = Eltwise.PrimitiveDesc(context.engine, desc, desc, "linear", -1).create(cache)
    relu = Eltwise.PrimitiveDesc(context.engine, desc, desc, "relu").create(cache)
    memories[0].numpy()[:] = range(-8, 8)
    context.submit(negate, {Arg.SRC: memories[0], Arg.DST: memories[1]})
    context.submit(relu, {Arg.SRC: memories[1], Arg.DST: memories[2]})
    assert not memories[2].numpy().any()
    context.execute()
    stream.wait()
    assert list(memories[2].numpy()) == [max(-float(value), 0.0) for value in range(-8, 8)]
    # They are executed once, and what stands behind a failure is dropped.
    memories[2].numpy()[:] = 0
    context.execute()
    context.submit(relu, {})
    context.submit(relu, {Arg.SRC: memories[1], Arg.DST: memories[2]})
    with pytest.raises(ValueError, match="missing"):
        context.execute()
    context.execute()
    stream.wait()
    assert not memories[2].numpy().any()
    # The map has primitives and memories too.
    context.add(InstanceKey("primitive", ("relu",), (), "me"), relu)
    assert context.find(InstanceKey("primitive", ("relu",), (), "me")) is relu
    assert context.nbytes > 0


def test_a_context_refuses_what_it_cannot_execute(cache: PrimitiveProvider) -> None:
    context, desc = DeviceContext(), MemoryDesc((16,), "f32")
    assert context.engine.kind == "cpu"
    with pytest.raises(TypeError, match="primitive: expect a Primitive, got str"):
        context.submit("relu", {})  # type: ignore[arg-type]
    elsewhere = Eltwise.PrimitiveDesc(Engine("cpu"), desc, desc, "relu").create(cache)
    with pytest.raises(ValueError, match="primitive: expect one on the context's"):
        context.submit(elsewhere, {})
    with pytest.raises(TypeError, match="stream: expect a Stream, got Engine"):
        DeviceContext(stream=Engine("cpu"))  # type: ignore[arg-type]


def test_an_executor_computes_on_the_stream_of_its_context(cache: PrimitiveProvider) -> None:
    stream = Stream(Engine("cpu"))
    executor = Executor(wide(), context=DeviceContext(stream=stream), cache=cache)
    assert executor.engine is stream.engine
    executor.run(x=array(2, 64))
    other = Engine("cpu")
    assert Executor(wide(), other, context=DeviceContext(stream=stream), cache=cache).engine is other


def test_an_operation_may_be_in_test_while_the_others_train(cache: PrimitiveProvider) -> None:
    graph = Graph("phases")
    x = graph.input("x", (2, 16, 6, 6))
    mean, variance = np.full(16, 3, np.float32), np.ones(16, np.float32)
    for name in ("fixed", "trained"):
        x = graph.batch_normalization(x, mean, variance, name=name, is_test=name == "fixed")
    graph.output("y", graph.softmax(x, is_test=True))
    context = DeviceContext()
    executor = Executor(graph, context=context, phase="train", cache=cache)
    found = executor.run(x=array(*IMAGE))
    assert set(found) == {"y", "trained.mean", "trained.variance"}
    expected = (array(*IMAGE) - 3) / np.sqrt(1 + 1e-5)
    np.testing.assert_allclose(found["trained.mean"], expected.mean((0, 2, 3)), atol=1e-5)
    (compiled,) = [each for each in context.instances().values() if isinstance(each, CompiledGraph)]
    assert {each.pd.op.prop for each in compiled.primitives if isinstance(each.pd.op, Softmax)} == {"forward_inference"}
    with pytest.raises(GraphError, match="is_test: expect a bool, got 'no'"):
        graph.softmax(x, is_test="no")  # type: ignore[arg-type]

"""Graphs run in this process: instances are made once, found again, and never mixed."""

from __future__ import annotations

import gc
import mmap
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from poolrt import DeviceContext, Engine, Executor, Graph, GraphError, Stream, StreamAttr
from poolrt.inprocess.compiled_graph import CompiledGraph
from poolrt.inprocess.device_context import InstanceKey
from poolrt.workers.execution.memory import Memory
from poolrt.workers.plans.executor import PlanExecutor
from poolrt.workers.primitives.provider import PrimitiveProvider
from poolrt.workers.threadpools.interface import KernelFailed, Region
from poolrt.workers.threadpools.sequential import SequentialPool
from poolrt.workers.threadpools.threads import ThreadsPool

from .networks import IMAGE, Network, array, close

BOUND_S = 60.0


def test_the_first_iteration_makes_everything_and_the_others_nothing(cache: PrimitiveProvider) -> None:
    network, context = Network(1), DeviceContext()
    executor = Executor(network.graph, context=context, cache=cache)
    x = array(*IMAGE, seed=9)
    assert close(executor.run(x=x), network.expected(x))
    made, kept = context.statistics().created, set(map(id, context.instances().values()))
    assert made == context.statistics().instances
    for seed in range(20):
        x = array(*IMAGE, seed=seed)
        assert close(executor.run(x=x), network.expected(x))
    assert context.statistics().created == made
    assert set(map(id, context.instances().values())) == kept


def test_two_graphs_that_look_alike_are_interleaved_a_thousand_times_without_creating_or_mixing(
    cache: PrimitiveProvider,
) -> None:
    # Given two graphs with equal names and shapes and other weights and activations, in one context
    networks, context = (Network(1), Network(2, "tanh")), DeviceContext()
    executors = [Executor(network.graph, context=context, cache=cache) for network in networks]
    inputs = [array(*IMAGE, seed=seed) for seed in range(5)]
    expected = [[network.expected(x) for x in inputs] for network in networks]
    for executor in executors:
        executor.run(x=inputs[0])
    before, created = context.statistics(), cache.cache.get_size()
    kept = {key: id(instance) for key, instance in context.instances().items()}
    # When they take turns
    for turn in range(1000):
        for executor, outputs in zip(executors, expected, strict=True):
            assert close(executor.run(x=inputs[turn % 5]), outputs[turn % 5])
    # Then nothing was made, neither memory nor primitive
    after = context.statistics()
    assert (after.created, after.instances, after.evicted) == (before.created, before.instances, 0)
    assert after.found - before.found == 2000
    assert {key: id(instance) for key, instance in context.instances().items()} == kept
    assert cache.cache.get_size() == created


def test_another_shape_makes_instances_once_and_the_first_are_found_when_it_comes_back(
    cache: PrimitiveProvider,
) -> None:
    network, context = Network(3), DeviceContext()
    executor = Executor(network.graph, context=context, cache=cache)
    shapes = (IMAGE, (1, *IMAGE[1:]), (3, 16, 4, 8))
    for dims in shapes:
        before = context.statistics().created
        x = array(*dims)
        assert close(executor.run(x=x), network.expected(x))
        assert context.statistics().created > before
    # Weights are brought into their layout once for all shapes
    weights = [key for key in context.instances() if key.what == "constant" and key.shapes == ((16, 16, 1, 1),)]
    assert len(weights) == 1
    made = context.statistics().created
    for _ in range(3):
        for dims in shapes:
            x = array(*dims, seed=1)
            assert close(executor.run(x=x), network.expected(x))
    assert context.statistics().created == made


def test_the_phase_selects_the_propagation_kind_and_back(cache: PrimitiveProvider) -> None:
    network, context = Network(4), DeviceContext()
    executor = Executor(network.graph, context=context, cache=cache)
    x = array(*IMAGE)

    def propagations() -> set[str]:
        graphs = [each for each in context.instances().values() if isinstance(each, CompiledGraph)]
        return {getattr(primitive.pd.op, "prop", "") for g in graphs for primitive in g.primitives} - {""}

    tested = executor.run(x=x)
    assert close(tested, network.expected(x))
    assert set(tested) == {"h", "y"}
    assert propagations() == {"forward_inference"}
    # In training, statistics are the batch's and what backward operations need is kept
    executor.phase = "train"
    trained = executor.run(x=x)
    assert close(trained, network.expected(x, of_the_batch=True))
    assert set(trained) == {"h", "y", "bn.mean", "bn.variance", "pool.workspace"}
    assert trained["pool.workspace"].shape == (2, 16, 3, 3)
    assert propagations() == {"forward_inference", "forward_training"}
    # Both are found again
    made = context.statistics().created
    assert close(executor.run(x=x), network.expected(x, of_the_batch=True))
    executor.phase = "test"
    assert close(executor.run(x=x), network.expected(x))
    assert context.statistics().created == made


def test_a_graph_can_be_executed_in_training_from_the_start(cache: PrimitiveProvider) -> None:
    network = Network(4)
    x = array(1, *IMAGE[1:], seed=3)
    executor = Executor(network.graph, phase="train", cache=cache)
    assert close(executor.run(x=x), network.expected(x, of_the_batch=True))


@pytest.mark.parametrize("shared", [True, False])
def test_eight_threads_get_their_own_results(cache: PrimitiveProvider, shared: bool) -> None:
    # Given one executor and one context for all of them
    network, context = Network(5), DeviceContext(shared=shared)
    executor = Executor(network.graph, context=context, cache=cache)
    inputs = [array(*IMAGE, seed=seed) for seed in range(8)]
    expected = [network.expected(x) for x in inputs]
    together = threading.Barrier(8)

    def run(number: int) -> tuple[bool, int]:
        executor.run(x=inputs[number])
        together.wait(BOUND_S)
        made = context.statistics().created
        right = all(close(executor.run(x=inputs[number]), expected[number]) for _ in range(25))
        together.wait(BOUND_S)
        return right, context.statistics().created - made

    # When they run at once, each with its own input
    with ThreadPoolExecutor(8) as pool:
        found = [future.result(BOUND_S) for future in [pool.submit(run, number) for number in range(8)]]
        # Then each gets its own results from what was made in its first iteration
        assert found == [(True, 0)] * 8
        if shared:
            plans = [key for key in context.instances() if key.what == "plan"]
            assert len({key.thread for key in plans}) == len(plans) == 8
        constants = [key for key in context.instances() if key.what == "constant"]
        assert {key.thread for key in constants} == {0}
    if shared:
        assert {key.thread for key in context.instances()} == {0}


def test_what_an_executor_had_is_forgotten_with_it(cache: PrimitiveProvider) -> None:
    network, context = Network(6), DeviceContext()
    x = array(*IMAGE)
    staying = Executor(network.graph, context=context, cache=cache)
    staying.run(x=x)
    alone = context.statistics().instances
    # Given others that come and go, without waiting for the garbage collector
    gc.disable()
    try:
        for _ in range(5):
            going = Executor(network.graph, context=context, cache=cache)
            going.run(x=x)
            assert context.statistics().instances == 2 * alone
            theirs = [
                weakref.ref(each)
                for each in list(context.instances().values())[alone:]
                if isinstance(each, (CompiledGraph, Memory, PlanExecutor))
            ]
            del going
            assert context.statistics().instances == alone
            assert {ref() for ref in theirs} == {None}
    finally:
        gc.enable()
    made = context.statistics().created
    assert close(staying.run(x=x), network.expected(x))
    assert context.statistics().created == made


def test_graphs_that_differ_in_one_operation_only_have_instances_of_their_own(cache: PrimitiveProvider) -> None:
    context, x = DeviceContext(), array(4, 6)
    functions: dict[str, Any] = {"relu": lambda a: np.maximum(a, 0), "tanh": np.tanh, "abs": np.abs}
    executors = {}
    for algorithm in functions:
        g = Graph("g")
        g.output("y", g.eltwise(g.input("x", (4, 6)), algorithm, name="act"))
        executors[algorithm] = Executor(g, context=context, cache=cache)
    for axis in (0, 1):
        g = Graph("g")
        g.output("y", g.softmax(g.input("x", (4, 6)), axis, name="act"))
        executors[f"softmax {axis}"] = Executor(g, context=context, cache=cache)
    for _ in range(3):
        for name, executor in executors.items():
            found = executor.run(x=x)["y"]
            if name in functions:
                assert np.allclose(found, functions[name](x), atol=1e-6)
            else:
                assert np.allclose(found.sum(int(name[-1])), 1, atol=1e-6)
    keys = [key for key in context.instances() if key.what == "plan"]
    assert len({key.executor for key in keys}) == len(keys) == len(executors)
    assert len({key._replace(executor=None) for key in keys}) == 1


@pytest.mark.parametrize("capacity", [1, 5])
def test_evicted_instances_are_made_again_and_results_stay_right(cache: PrimitiveProvider, capacity: int) -> None:
    networks, context = (Network(1), Network(2, "tanh")), DeviceContext(capacity)
    executors = [Executor(network.graph, context=context, cache=cache) for network in networks]
    for turn in range(4):
        x = array(*IMAGE, seed=turn)
        for network, executor in zip(networks, executors, strict=True):
            assert close(executor.run(x=x), network.expected(x))
    assert context.statistics().instances == capacity
    assert context.statistics().evicted > 8


def test_an_executor_of_a_plan_keeps_what_is_evicted_before_it(cache: PrimitiveProvider) -> None:
    network, x = Network(1), array(*IMAGE)
    whole = DeviceContext()
    Executor(network.graph, context=whole, cache=cache).run(x=x)
    needed = whole.statistics().created
    for evicted in range(1, needed + 1):
        # Given a context that the oldest instances, constants and the graph among them, had to leave, and that has room again
        context = DeviceContext(needed)
        executor = Executor(network.graph, context=context, cache=cache)
        executor.run(x=x)
        for number in range(evicted):
            context.add(InstanceKey("other", (number,), (), "another"), number)
        context.set_capacity(10 * needed)
        # Then it finds all that it needs, or all is made again
        again = array(*IMAGE, seed=evicted)
        assert close(executor.run(x=again), network.expected(again))
        made = context.statistics().created - needed - evicted
        assert made == (0 if evicted < needed else needed)


def test_threads_that_evict_each_others_instances_get_right_results(cache: PrimitiveProvider) -> None:
    network, context = Network(5), DeviceContext(3, shared=True)
    executor = Executor(network.graph, context=context, cache=cache)
    inputs = [array(*IMAGE, seed=seed) for seed in range(4)]
    expected = [network.expected(x) for x in inputs]

    def run(number: int) -> bool:
        return all(close(executor.run(x=inputs[number]), expected[number]) for _ in range(5))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(4), timeout=BOUND_S)) == [True] * 4
    assert context.statistics().evicted > 0


def test_the_engine_given_is_where_nodes_run_that_name_none(cache: PrimitiveProvider) -> None:
    g = Graph("g", "opencl:7")
    g.output("y", g.eltwise(g.input("x", (4, 6)), "relu"))
    x = array(4, 6)
    executor = Executor(g, Engine("cpu"), cache=cache)
    assert np.array_equal(executor.run(x=x)["y"], np.maximum(x, 0))


def test_a_stream_of_the_users_computes_on_its_threadpool(cache: PrimitiveProvider) -> None:
    network, engine, x = Network(7), Engine("cpu"), array(*IMAGE)
    pool = ThreadsPool(2)
    attr = StreamAttr("cpu")
    attr.set_threadpool(pool)
    executor = Executor(network.graph, engine, Stream(engine, attr), cache=cache)
    assert executor.engine is engine
    assert close(executor.run(x=x), network.expected(x))
    pool.close()


@pytest.mark.parametrize("shared", [False, True])
def test_a_task_may_run_the_executor_that_a_thread_runs_which_waits_for_the_task(
    shared: bool, cache: PrimitiveProvider
) -> None:
    waited_for, results = threading.Event(), list[bool]()

    class Watched(ThreadsPool):
        """Records when a thread waits for its tasks."""

        def wait(self) -> None:
            if not self.get_in_parallel():
                waited_for.set()
            super().wait()

    network, engine, pool = Network(1), Engine("cpu"), Watched(1, asynchronous=True)
    inputs = [array(*IMAGE, seed=seed) for seed in (8, 9)]
    attr = StreamAttr("cpu")
    attr.set_threadpool(pool)
    executor = Executor(network.graph, engine, Stream(engine, attr), context=DeviceContext(shared=shared), cache=cache)

    def run(x: Any) -> None:
        results.append(close(executor.run(x=x), network.expected(x)))

    def task(_i: int, _n: int) -> None:
        assert waited_for.wait(BOUND_S)
        run(inputs[0])

    pool.parallel_for(1, task)
    thread = threading.Thread(target=run, args=(inputs[1],), daemon=True)
    thread.start()
    thread.join(BOUND_S)
    assert not thread.is_alive(), "a task waits for a thread that waits for the task"
    pool.close()
    assert results == [True, True]


def test_the_first_iteration_may_be_in_a_task_of_an_asynchronous_pool(cache: PrimitiveProvider) -> None:
    network, engine, x = Network(1), Engine("cpu"), array(*IMAGE, seed=8)
    results: list[bool] = []
    with ThreadsPool(1, asynchronous=True) as pool:
        attr = StreamAttr("cpu")
        attr.set_threadpool(pool)
        executor = Executor(network.graph, engine, Stream(engine, attr), cache=cache)
        pool.parallel_for(1, lambda _i, _n: results.append(close(executor.run(x=x), network.expected(x))))
        pool.wait()
    assert results == [True]


def test_data_types_views_and_several_results_come_as_they_are(cache: PrimitiveProvider) -> None:
    g = Graph("g")
    x = g.input("x", (3, 8), "int32")
    g.output("same", x)
    g.output("part", g.slice(x, 2, 7, 1, 2))
    g.output("turned", g.transpose(x))
    g.output("wide", g.reorder(x, dtype="float32"))
    executor = Executor(g, cache=cache)
    given = [np.arange(rows * 16, dtype=np.int32).reshape(rows, 16)[:, ::2] for rows in (3, 5)]
    results = [executor.run(x=values) for values in given]
    for values, found in zip(given, results, strict=True):
        assert {name: array.dtype.name for name, array in found.items()} == {
            "same": "int32", "part": "int32", "turned": "int32", "wide": "float32",
        }  # fmt: skip
        for name, wanted in (("same", values), ("part", values[:, 2:7:2]), ("turned", values.T), ("wide", values)):
            assert np.array_equal(found[name], wanted), name
    # What a run gives is the caller's
    executor.run(x=np.zeros((5, 8), np.int32))
    assert np.array_equal(results[1]["same"], given[1])


def test_inputs_that_need_no_conversion_are_read_where_they_are_and_outputs_are_new_arrays(
    cache: PrimitiveProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses: list[tuple[int, int]] = []
    run = PlanExecutor.run

    def watched(self: PlanExecutor, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        addresses.append((inputs[0], outputs[0]))
        run(self, inputs, outputs)

    monkeypatch.setattr(PlanExecutor, "run", watched)
    g = Graph("g")
    g.output("y", g.eltwise(g.input("x", (4, 6)), "tanh"))
    executor, pages = Executor(g, cache=cache), np.zeros(2 * mmap.PAGESIZE // 4, np.float32)
    # Not at the end of a page, behind which some kernels must not read
    start = -pages.ctypes.data % mmap.PAGESIZE // 4
    x = pages[start : start + 24].reshape(4, 6)
    x[...] = array(4, 6)
    x.flags.writeable = False
    wide = np.zeros((4, 12), np.float32)
    unaligned = np.frombuffer(b"0" + x.tobytes(), np.float32, 24, 1).reshape(4, 6)
    given = [x, wide[:, ::2], np.asfortranarray(x), unaligned]
    results = [executor.run(x=values)["y"] for values in given]
    assert [source == values.ctypes.data for (source, _), values in zip(addresses, given, strict=True)] == [
        True, False, False, False,
    ]  # fmt: skip
    assert [target for _, target in addresses] == [found.ctypes.data for found in results]
    assert len({target for _, target in addresses}) == len(given)
    assert all(np.allclose(found, np.tanh(values), atol=1e-6) for found, values in zip(results, given, strict=True))


def test_an_error_names_the_step_and_the_next_run_is_right(cache: PrimitiveProvider) -> None:
    class Failing(SequentialPool):
        fails = True

        def run_regions(self, regions: Sequence[Region]) -> None:
            if self.fails:
                raise regions[-1].failure()
            super().run_regions(regions)

    g, engine, pool, attr = Graph("g"), Engine("cpu"), Failing(), StreamAttr("cpu")
    g.output("y", g.eltwise(g.input("x", (4, 6)), "abs", name="act"))
    attr.set_threadpool(pool)
    executor, x = Executor(g, engine, Stream(engine, attr), cache=cache), array(4, 6)
    with pytest.raises(KernelFailed, match="step 'act' failed"):
        executor.run(x=x)
    pool.fails = False
    assert np.array_equal(executor.run(x=x)["y"], np.abs(x))


def test_an_interrupt_is_raised_when_no_task_works_on_the_arrays_any_more(cache: PrimitiveProvider) -> None:
    class Interrupted(ThreadsPool):
        """Interrupts the first that waits, and holds tasks back until a second one does."""

        def __init__(self) -> None:
            super().__init__(1, asynchronous=True)
            self.may_run = threading.Event()
            self.interrupts = True

        def wait(self) -> None:
            if self.interrupts:
                self.interrupts = False
                raise KeyboardInterrupt
            self.may_run.set()
            super().wait()

    g, engine, pool, attr = Graph("g"), Engine("cpu"), Interrupted(), StreamAttr("cpu")
    g.output("y", g.eltwise(g.input("x", (4, 6)), "abs"))
    attr.set_threadpool(pool)
    executor, x = Executor(g, engine, Stream(engine, attr), cache=cache), array(4, 6)

    def hold(_i: int, _n: int) -> None:
        assert pool.may_run.wait(BOUND_S)

    pool.parallel_for(1, hold)
    with pytest.raises(KeyboardInterrupt):
        executor.run(x=x)
    assert pool.may_run.is_set()
    assert np.array_equal(executor.run(x=x)["y"], np.abs(x))
    pool.close()


def test_a_batch_of_sequences_may_change_in_both_dimensions(cache: PrimitiveProvider) -> None:
    g, weights = Graph("g"), array(6, 4)
    g.output("y", g.reduction(g.matmul(g.input("x", (2, 5, 6)), weights), "sum", 1, keep_dims=False))
    executor = Executor(g, cache=cache)
    for dims in ((2, 5, 6), (5, 2, 6), (2, 10, 6), (1, 1, 6)):
        x = array(*dims)
        assert np.allclose(executor.run(x=x)["y"], (x @ weights).sum(1), atol=1e-4)


def test_what_does_not_go_together_is_refused_by_name(cache: PrimitiveProvider) -> None:
    network = Network(8)
    executor = Executor(network.graph, cache=cache)
    assert executor.inputs == {"x": IMAGE}
    x = array(*IMAGE)
    with pytest.raises(ValueError, match=r"graph network takes the inputs x float32\[2, 16, 6, 6\]; given: z"):
        executor.run(z=x)
    with pytest.raises(TypeError, match="input x: expect dtype float32, got float64"):
        executor.run(x=x.astype(np.float64))
    with pytest.raises(ValueError, match=r"input x: expect sizes of at least 1, got \(0, 16, 6, 6\)"):
        executor.run(x=x[:0])
    message = r"convolution 'conv', for inputs x \(2, 8, 6, 6\): weights: expect 8 input channels, got 16"
    with pytest.raises(GraphError, match=message):
        executor.run(x=x[:, :8])
    # A refusal leaves nothing behind
    assert close(executor.run(x=x), network.expected(x))


def test_arguments_of_an_executor_are_checked_by_name() -> None:
    graph, engine = Network(1).graph, Engine("cpu")
    wrong: Any = "cpu"
    for arguments, expected in (
        ({"graph": wrong}, "graph: expect a Graph, got str"),
        ({"engine": wrong}, "engine: expect Engine, got str"),
        ({"stream": wrong}, "stream: expect Stream, got str"),
        ({"context": wrong}, "context: expect DeviceContext, got str"),
    ):
        with pytest.raises(TypeError, match=expected):
            Executor(**{"graph": graph, **arguments})
    with pytest.raises(ValueError, match="phase: unknown 'eval'; known: test, train"):
        Executor(graph, phase="eval")
    with pytest.raises(ValueError, match="stream: expect one on "):
        Executor(graph, engine, Stream(Engine("cpu")))
    with pytest.raises(GraphError, match="has no output"):
        Executor(Graph("empty"))

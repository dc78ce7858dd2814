"""Whole networks beside ONNX Runtime and OpenVINO, on one thread and on two: nine CNNs, and five that `Graph` builds.

The CNNs are those of poolrt.models, one picture and eight at a time. BERT-base, ViT-B/16, GPT-2, a U-Net and MobileNetV3 are
built operation by operation; the rivals compute the same operations with the same weights, as an ONNX model. All results are
compared with ONNX Runtime's. GPT-2 reads a prompt of 128 tokens, and then makes 32 steps of one token with the keys and values
so far. A ratio is the time of the faster rival divided by poolrt's. Times on one thread are the processor's.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import onnx
from built.bert import build_bert
from built.gpt2 import Gpt2
from built.mobilenet_v3 import BLOCKS, build_mobilenet_v3
from built.onnx_writer import write_model
from built.transformer import BASE, Sizes
from built.unet import build_unet
from built.vit import build_vit
from measure import arguments, record, sized
from onnx import numpy_helper
from rivals import (
    POOLRT,
    Array,
    Session,
    check,
    describe_times,
    measure,
    poolrt_session,
    ratio_of,
    rival_sessions,
    summarize,
)

from poolrt import Engine, Graph, NativePool, Stream, StreamAttr, load_onnx, models
from poolrt.cachestore import CacheStore
from poolrt.workers.primitives.provider import PrimitiveProvider

#: Runs a network with one contestant's session and returns what is compared.
Use = Callable[[Session], tuple[Array, ...]]
_ROUNDS: Final = 7
#: Seconds that one measurement of one contestant takes at least.
_LEAST_S: Final = 0.2
_BATCHES: Final = (1, 8)
_PROMPT: Final = sized(128, 8)
_STEPS: Final = sized(32, 3)
_SIZES: Final = sized(BASE, Sizes(1, 64, 2, 128))
_VOCABULARY: Final = sized(50257, 100)


@dataclass(frozen=True)
class Network:
    """One network with inputs of one size, for poolrt and for its rivals."""

    name: str
    group: str
    graph: Graph
    model: bytes
    use: Use


def convolutional_network(name: str) -> Iterator[Network]:
    """Yield one of the nine CNNs, for one picture and for several."""
    for batch in sized(_BATCHES, (2,)):
        proto = models.build(name)
        resize_batch(proto, batch)
        model = proto.SerializeToString()
        (port,) = proto.graph.input
        picture = np.random.default_rng(0).standard_normal((batch, 3, 224, 224), np.float32)
        group = f"CNNs, batch {batch}"
        yield Network(f"{name}, batch {batch}", group, load_onnx(model), model, _feed({port.name: picture}))


def resize_batch(proto: onnx.ModelProto, batch: int) -> None:
    """Change a model for one picture to one for ``batch`` pictures."""
    graph = proto.graph
    del graph.value_info[:]
    for port in (*graph.input, *graph.output):
        port.type.tensor_type.shape.dim[0].dim_value = batch
    stored = {each.name: each for each in graph.initializer}
    for node in graph.node:
        if node.op_type == "Reshape" and node.input[0] not in stored:
            shape = numpy_helper.to_array(stored[node.input[1]]).copy()
            shape[0] = batch
            stored[node.input[1]].CopyFrom(numpy_helper.from_array(shape, node.input[1]))


def bert() -> Iterator[Network]:
    """Yield the encoder of BERT-base, on a sentence of 128 tokens without padding."""
    draw = np.random.default_rng(1)
    vocabulary = sized(30522, 100)
    ids = draw.integers(0, vocabulary, (1, _PROMPT))
    segments = np.repeat([0, 1], _PROMPT // 2)[None]
    feeds = {"ids": ids, "segments": segments, "mask": np.ones((1, _PROMPT), np.float32)}
    yield _built("bert", f"BERT-base, {_PROMPT} tokens", build_bert(_PROMPT, _SIZES, vocabulary), feeds)


def vit() -> Iterator[Network]:
    """Yield ViT-B/16."""
    size = sized(224, 32)
    yield _built("vit", "ViT-B/16", build_vit(size, _SIZES), {"x": _picture(size)})


def unet() -> Iterator[Network]:
    """Yield the U-Net."""
    size = sized(256, 16)
    yield _built("unet", f"U-Net, {size}x{size}", build_unet(size, *sized((32, 4), (8, 1))), {"x": _picture(size)})


def mobilenet_v3() -> Iterator[Network]:
    """Yield MobileNetV3-Large."""
    size = sized(224, 32)
    graph = build_mobilenet_v3(size, sized(len(BLOCKS), 4))
    yield _built("mobilenet_v3", "MobileNetV3-Large", graph, {"x": _picture(size)})


def gpt2() -> Iterator[Network]:
    """Yield GPT-2's prompt, and its steps after it."""
    draw = np.random.default_rng(1)
    network = Gpt2(_SIZES, _VOCABULARY)
    ids = draw.integers(0, _VOCABULARY, (1, _PROMPT + _STEPS))
    yield _built("gpt2", f"GPT-2, prompt of {_PROMPT}", network.prompt(_PROMPT), {"ids": ids[:, :_PROMPT]})
    graph = network.step(_PROMPT)
    dims = {name: dims for name, dims in graph.inputs.items() if name.startswith("past_")}
    past = [draw.standard_normal(each, np.float32) for each in dims.values()]
    model = write_model(graph, {name: {2: "past"} for name in dims})
    assert [*dims] == network.past_names()

    def generate(session: Session) -> tuple[Array, ...]:
        held = tuple(past)
        for place in range(_PROMPT, _PROMPT + _STEPS):
            now = {"ids": ids[:, place : place + 1], "place": np.array([[place]])}
            *held_now, logits = session({**now, **dict(zip(dims, held, strict=True))})
            held = tuple(held_now)
        return (*held, logits)

    yield Network(f"GPT-2, {_STEPS} steps", "built", graph, model, generate)


def _built(name: str, title: str, graph: Graph, feeds: Mapping[str, Array]) -> Network:
    return Network(title, "built", graph, write_model(graph), _feed(feeds))


def _feed(feeds: Mapping[str, Array]) -> Use:
    return lambda session: session(feeds)


def _picture(size: int) -> Array:
    return np.random.default_rng(0).standard_normal((1, 3, size, size), np.float32)


NETWORKS: Final[dict[str, Callable[[], Iterator[Network]]]] = {
    **{name: partial(convolutional_network, name) for name in models.NAMES},
    "bert": bert,
    "vit": vit,
    "gpt2": gpt2,
    "unet": unet,
    "mobilenet_v3": mobilenet_v3,
}
#: The networks of the short form; the others among the nine have no operation more.
_SHORT: Final = ("squeezenet", "bert", "vit", "gpt2", "unet", "mobilenet_v3")


def compare(network: Network, stream: Stream, threads: int, cache: PrimitiveProvider) -> dict[str, float]:
    """Return the seconds of each contestant; raise AssertionError if results differ from ONNX Runtime's."""
    rivals = rival_sessions(network.model, threads)
    sessions = {POOLRT: poolrt_session(network.graph, stream, cache), **rivals}
    results = {name: network.use(session) for name, session in sessions.items()}
    for name, result in results.items():
        check(f"{network.name}: {name}", result, results["ONNX Runtime"])
    contestants = {name: partial(network.use, session) for name, session in sessions.items()}
    return measure(contestants, threads, _ROUNDS, _LEAST_S)


def main() -> None:
    """Print a table for each number of threads, and the means of each group."""
    chosen = arguments(__doc__, tuple(NETWORKS))
    if chosen == list(NETWORKS):
        chosen = sized(chosen, list(_SHORT))
    ratios: dict[tuple[str, int], dict[str, float]] = {}
    lines: dict[int, list[str]] = {threads: [] for threads in (1, 2)}
    with tempfile.TemporaryDirectory() as home, CacheStore.connect(home=home, url=f"unix://{home}/none.sock") as store:
        cache, engine = PrimitiveProvider(1024, store), Engine("cpu")
        for network in (network for name in chosen for network in NETWORKS[name]()):
            for threads in lines:
                with NativePool(threads) as pool:
                    attr = StreamAttr("cpu")
                    attr.set_threadpool(pool)
                    found = compare(network, Stream(engine, attr), threads, cache)
                lines[threads].append(f"{network.name}: {describe_times(found)}")
                print(f"  threads: {threads}; {lines[threads][-1]}", flush=True)
                ratios.setdefault((network.group, threads), {})[network.name] = ratio_of(found)
    for threads, rows in lines.items():
        means = [f"{group}: {summarize(found)}" for (group, count), found in ratios.items() if count == threads]
        clock = "one thread, processor time" if threads == 1 else f"{threads} threads, wall time"
        record(f"Networks, {clock}", rows + means)


if __name__ == "__main__":
    main()

"""The networks whose kernels are prebuilt, as graphs with weights of zeros: only shapes choose kernels.

A network has each of its layers once: a kernel that a layer needs does not depend on the number of such layers. Widths and
sizes vary, since tiles of convolutions and products are chosen by them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..graph.builder import Graph
from ..graph.onnx.importer import load_onnx
from ..graph.values import Value
from ..models import NAMES, build

#: Sizes of pictures, in pixels along each side, and pictures at a time.
_SIZES: Final = (64, 96, 128, 160, 192, 224, 256, 299, 320, 512)
_BATCHES: Final = (1, 2, 4, 8, 16)
#: Texts at a time and tokens of each, for encoders; as many tokens for decoders, and 1 with this many before it.
_TEXTS: Final = (
    (1, 8),
    (1, 16),
    (1, 32),
    (1, 64),
    (1, 77),
    (1, 100),
    (1, 128),
    (1, 200),
    (1, 256),
    (1, 512),
    (2, 128),
    (8, 128),
)
#: Width and heads of transformers: small, base, large.
_TRANSFORMERS: Final = ((384, 6), (512, 8), (768, 12))
_VOCABULARY: Final = 1000
#: Rows and classes of perceptrons: few columns have kernels of their own, in products and softmax.
_PERCEPTRONS: Final = tuple((rows, classes) for rows in (1, 8, 64) for classes in (2, 10, 100))
#: Modes of floating point of transformers: processors with BF16 or AMX multiply f32 as bf16 in the second, others do not.
_MODES: Final = ("strict", "bf16")
#: Outputs, stride and kernel of each inverted bottleneck.
_INVERTED: Final = ((16, 1, 3), (24, 2, 3), (32, 2, 5), (96, 2, 3), (160, 2, 5), (160, 1, 5))


def graphs() -> Iterator[tuple[str, Callable[[], Graph]]]:
    """Yield the name of each network and a function that builds it."""
    for name in NAMES:
        yield name, partial(_of_package, name)
    for batch, size in [*((1, size) for size in _SIZES), *((batch, 224) for batch in _BATCHES[1:])]:
        yield f"residual {batch} x {size}", partial(_pictures, size, batch, _residual)
        yield f"integers {batch} x {size}", partial(_pictures, size, batch, _residual, _Integers)
        yield f"mobile {batch} x {size}", partial(_pictures, size, batch, _mobile)
        yield f"U-Net {batch} x {size // 32 * 32}", partial(_pictures, size // 32 * 32, batch, _u_net)
    for rows, classes in _PERCEPTRONS:
        yield f"perceptron {rows} to {classes}", partial(_perceptron, rows, classes)
    for wide, heads in _TRANSFORMERS:
        for batch, rows in _TEXTS:
            for mode in _MODES:
                yield f"encoder {wide}, {batch} x {rows}, {mode}", partial(_encoder, wide, heads, batch, rows, mode)
                yield f"decoder {wide}, {batch} x {rows}, {mode}", partial(_decoder, wide, heads, batch, rows, 0, mode)
                yield (
                    f"decoder {wide}, {batch} x 1 after {rows}, {mode}",
                    partial(_decoder, wide, heads, batch, 1, rows, mode),
                )
        for batch in _BATCHES:
            for mode in _MODES:
                yield f"vision {wide}, {batch} x 224, {mode}", partial(_vision, wide, heads, batch, mode)


def _of_package(name: str) -> Graph:
    return load_onnx(build(name, check=False))


def _zeros(*shape: int) -> NDArray[np.float32]:
    return np.zeros(shape, np.float32)


class _Pictures:
    """A graph under construction: convolutions with biases, as networks have them once batch normalizations are folded."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def conv(
        self,
        x: Value,
        wide: int,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        act: str = "relu",
        bias: bool = True,
    ) -> Value:
        """Convolve to ``wide`` channels, at the same size unless there is a stride."""
        g, channels = self.graph, x.shape[1]
        weights = _zeros(wide, channels // groups, kernel, kernel)
        given = _zeros(wide) if bias else None
        x = g.convolution(x, weights, given, strides=stride, padding=kernel // 2, groups=groups)
        if act == "relu6":
            return g.eltwise(x, "clip", 0.0, 6.0)
        return g.eltwise(x, act) if act else x


class _Integers(_Pictures):
    """The same with every tensor quantised to 8 bits and restored, as exporters write it; weights have a scale a channel."""

    def conv(
        self,
        x: Value,
        wide: int,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        act: str = "relu",
        bias: bool = True,
    ) -> Value:
        """Convolve quantised pictures."""
        g, channels = self.graph, x.shape[1]
        stored = g.constant(np.ones((wide, channels // groups, kernel, kernel), np.int8))
        scales = np.full((wide, 1, 1, 1), 0.01, np.float32)
        weights = g.reorder(stored, dtype="float32", scales={"src": scales})
        x = g.convolution(self.quantised(x), weights, strides=stride, padding=kernel // 2, groups=groups)
        return self.quantised(g.eltwise(x, act) if act else x)

    def quantised(self, x: Value) -> Value:
        """Quantise a tensor and restore it."""
        scale, point = 0.05, 128
        stored = self.graph.reorder(x, dtype="uint8", scales={"dst": scale}, zero_points={"dst": point})
        return self.graph.reorder(stored, dtype="float32", scales={"src": scale}, zero_points={"src": point})


def _pictures(
    size: int, batch: int, build: Callable[[_Pictures, Value], None], kind: type[_Pictures] = _Pictures
) -> Graph:
    graph = Graph("pictures")
    build(kind(graph), graph.input("x", (batch, 3, size, size)))
    return graph


def _classes(net: _Pictures, x: Value) -> None:
    """Average each channel and multiply, as networks end, by each of the operations that exporters write."""
    g = net.graph
    wide = x.shape[1]
    flat = g.reshape(g.reduction(x, "mean", (2, 3)), (x.shape[0], wide))
    g.output("scores", g.softmax(g.inner_product(flat, _zeros(1000, wide), _zeros(1000)), axis=-1))
    pooled = g.pooling(x, "avg_include_padding", x.shape[2:])
    g.output("logits", g.matmul(g.reshape(pooled, (x.shape[0], wide)), _zeros(wide, 1000), _zeros(1000)))


def _residual(net: _Pictures, x: Value) -> None:
    """Blocks of ResNet-18 and ResNet-50, with the stems of 7 and of 3 and both poolings."""
    g = net.graph
    stem = g.pooling(net.conv(x, 64, 7, 2), "max", 3, strides=2, padding=1)
    g.output("small stem", g.pooling(net.conv(net.conv(x, 32, 3, 2), 64, 3), "max", 2, strides=2))
    for basic in (True, False):
        y = stem
        for stage, wide in enumerate((64, 128, 256, 512)):
            for stride in (1 if stage == 0 else 2, 1):
                out = wide if basic else 4 * wide
                way = y if y.shape[1] == out and stride == 1 else net.conv(y, out, 1, stride, act="")
                if basic:
                    z = net.conv(net.conv(y, wide, 3, stride), wide, 3, act="")
                else:
                    z = net.conv(net.conv(net.conv(y, wide), wide, 3, stride), out, act="")
                y = g.eltwise(g.binary(z, way, "add"), "relu")
        if not basic:
            _classes(net, y)
        g.output(f"last {basic}", y)


def _mobile(net: _Pictures, x: Value) -> None:
    """Blocks of MobileNetV2, MobileNetV3 and EfficientNet: depthwise kernels of 3 and 5, squeeze and excitation."""
    g = net.graph
    for act in ("relu6", "hardswish", "swish"):
        y = net.conv(x, 16 if act == "hardswish" else 32, 3, 2, act=act)
        for index, (wide, stride, kernel) in enumerate(_INVERTED):
            inner = 6 * y.shape[1] if index else y.shape[1]
            z = net.conv(y, inner, act=act) if index else y
            z = net.conv(z, inner, kernel, stride, groups=inner, act=act)
            if act != "relu6":
                squeezed = g.reduction(z, "mean", (2, 3))
                squeezed = net.conv(squeezed, max(8, inner // 4), act="relu" if act == "hardswish" else act)
                gate = "hardsigmoid" if act == "hardswish" else "logistic"
                z = g.binary(z, net.conv(squeezed, inner, act=gate), "mul")
            z = net.conv(z, wide, act="")
            y = g.binary(y, z, "add") if y.shape == z.shape else z
        y = net.conv(y, 1280 if act != "hardswish" else 960, act=act)
        g.output(act, g.pooling(y, "avg_include_padding", y.shape[2:]))


def _u_net(net: _Pictures, x: Value) -> None:
    """Images that shrink and grow: by a transposed convolution and by resampling of both kinds."""
    g, kept = net.graph, []
    for wide in (32, 64, 128, 256):
        x = net.conv(net.conv(x, wide, 3), wide, 3)
        kept.append(x)
        x = g.pooling(x, "max", 2, strides=2)
    x = net.conv(net.conv(x, 512, 3), 512, 3)
    for index, before in enumerate(reversed(kept)):
        wide = before.shape[1]
        if index % 2:
            grown = g.deconvolution(x, _zeros(wide, x.shape[1], 2, 2), _zeros(wide), strides=2)
        else:
            way = "linear" if index else "nearest"
            grown = net.conv(g.resampling(x, way, before.shape[2:]), wide, act="")
        x = net.conv(net.conv(g.concat([before, grown], axis=1), wide, 3), wide, 3)
    g.output("y", net.conv(x, 2, act=""))
    g.output("mask", net.conv(x, 1, act="logistic"))


def _perceptron(rows: int, classes: int) -> Graph:
    """Return README's first example, for some rows and classes, and the same with biases."""
    g = Graph("mlp")
    x = g.input("x", (rows, 784))
    hidden = g.eltwise(g.matmul(x, _zeros(784, 256)), "relu")
    g.output("y", g.softmax(g.matmul(hidden, _zeros(256, classes)), axis=-1))
    hidden = g.eltwise(g.matmul(x, _zeros(784, 256), _zeros(256)), "relu")
    g.output("biased", g.softmax(g.matmul(hidden, _zeros(256, classes), _zeros(classes)), axis=-1))
    return g


def _linear(g: Graph, x: Value, wide: int) -> Value:
    return g.matmul(x, _zeros(x.shape[-1], wide), _zeros(wide))


def _normal(g: Graph, x: Value) -> Value:
    wide = x.shape[-1]
    return g.layer_normalization(x, _zeros(wide), _zeros(wide))


def _heads(g: Graph, x: Value, heads: int) -> Value:
    batch, rows, wide = x.shape
    return g.transpose(g.reshape(x, (batch, rows, heads, wide // heads)), (0, 2, 1, 3))


def _joined(g: Graph, x: Value) -> Value:
    batch, heads, rows, depth = x.shape
    return g.reshape(g.transpose(x, (0, 2, 1, 3)), (batch, rows, heads * depth))


def _attend(g: Graph, x: Value, heads: int, mask: Value | None = None) -> Value:
    q, k, v = (_heads(g, _linear(g, x, x.shape[-1]), heads) for _ in range(3))
    return _linear(g, _joined(g, g.attention(q, k, v, mask)), x.shape[-1])


def _feed_forward(g: Graph, x: Value, act: str) -> Value:
    return _linear(g, g.eltwise(_linear(g, x, 4 * x.shape[-1]), act), x.shape[-1])


def _embedded(g: Graph, wide: int, batch: int, rows: int) -> Value:
    words = g.gather(g.constant(_zeros(_VOCABULARY, wide)), g.input("ids", (batch, rows), "int64"))
    return g.binary(words, _zeros(1, rows, wide), "add")


def _encoder(wide: int, heads: int, batch: int, rows: int, mode: str) -> Graph:
    """A layer of BERT, with a mask and without, and its pooler."""
    g = Graph("encoder", fpmath_mode=mode)
    mask = g.binary(g.input("mask", (batch, 1, 1, rows)), np.float32(-1e9), "mul")
    x = _normal(g, _embedded(g, wide, batch, rows))
    for each in (mask, None):
        x = _normal(g, g.binary(x, _attend(g, x, heads, each), "add"))
        x = _normal(g, g.binary(x, _feed_forward(g, x, "gelu_erf"), "add"))
    g.output("y", x)
    first = g.reshape(g.slice(x, axes=(1,), starts=(0,), ends=(1,)), (batch, wide))
    g.output("pooled", g.eltwise(_linear(g, first, wide), "tanh"))
    return g


def _decoder(wide: int, heads: int, batch: int, rows: int, past: int, mode: str) -> Graph:
    """A layer of GPT-2, and its logits, with the keys and values of earlier tokens or without."""
    g = Graph("decoder", fpmath_mode=mode)
    x = _embedded(g, wide, batch, rows)
    y = _linear(g, _normal(g, x), 3 * wide)
    parts = (g.slice(y, axes=(2,), starts=(n * wide,), ends=((n + 1) * wide,)) for n in range(3))
    q, k, v = (_heads(g, part, heads) for part in parts)
    if past:
        shape = (batch, heads, past, wide // heads)
        k, v = (g.concat([g.input(name, shape), new], axis=2) for name, new in (("k", k), ("v", v)))
    g.output("keys", k)
    g.output("values", v)
    x = g.binary(x, _linear(g, _joined(g, g.attention(q, k, v, causal=True)), wide), "add")
    x = g.binary(x, _feed_forward(g, _normal(g, x), "gelu_tanh"), "add")
    g.output("logits", g.matmul(_normal(g, x), _zeros(wide, _VOCABULARY)))
    return g


def _vision(wide: int, heads: int, batch: int, mode: str) -> Graph:
    """ViT: a convolution of patches, a token for the class, a layer, and the classes."""
    g = Graph("vision", fpmath_mode=mode)
    for patch in (16, 32):
        x = g.convolution(
            g.input(f"x{patch}", (batch, 3, 224, 224)), _zeros(wide, 3, patch, patch), _zeros(wide), strides=patch
        )
        rows = math.prod(x.shape[2:])
        x = g.transpose(g.reshape(x, (batch, wide, rows)), (0, 2, 1))
        token = g.expand(g.constant(_zeros(1, 1, wide)), (batch, 1, wide))
        x = g.binary(g.concat([token, x], axis=1), _zeros(1, rows + 1, wide), "add")
        x = g.binary(x, _attend(g, _normal(g, x), heads), "add")
        x = g.binary(x, _feed_forward(g, _normal(g, x), "gelu_erf"), "add")
        first = g.reshape(g.slice(_normal(g, x), axes=(1,), starts=(0,), ends=(1,)), (batch, wide))
        g.output(f"y{patch}", _linear(g, first, 1000))
    return g

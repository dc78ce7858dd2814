"""The wire form: exactly what the coordinator is promised."""

from __future__ import annotations

import msgpack
import numpy as np

from poolrt import Graph


def test_the_wire_form_of_a_small_network() -> None:
    g = Graph("net", engine="opencl:1")
    weights, bias = np.ones((8, 3, 3, 3), np.float32), np.ones(8, np.float32)
    x = g.input("x", (1, 3, 6, 6))
    unused = g.input("unused", (2,))
    first = g.convolution(x, weights, bias, padding=((1, 0), (1, 0)), strides=2, name="conv")
    second = g.pooling(x, "max", 2, strides=2, name="pool")
    g.convolution(x, weights, name="dead")
    both = g.concat([first, second], 1, name="join")
    g.output("y", g.transpose(g.reshape(both, (11, 9), name="flat"), name="turn"))
    g.output("z", first)
    wire, constants = g.to_wire()
    assert wire == {
        "name": "net",
        "engine": "opencl:1",
        "fpmath_mode": "strict",
        "values": [
            [[1, 3, 6, 6], "f32"],
            [[2], "f32"],
            [[8, 3, 3, 3], "f32"],
            [[8], "f32"],
            [[1, 8, 3, 3], "f32"],
            [[1, 3, 3, 3], "f32"],
            [[1, 11, 3, 3], "f32"],
            [[11, 9], "f32"],
            [[9, 11], "f32"],
        ],
        "inputs": [["x", 0], ["unused", 1]],
        "outputs": [["y", 8], ["z", 4]],
        "constants": [[2, 864], [3, 32]],
        "nodes": [
            [
                "convolution",
                "conv",
                [0, 2, 3],
                [4],
                {"strides": [2, 2], "dilations": [0, 0], "padding_l": [1, 1], "padding_r": [0, 0], "groups": 1},
                [],
                [],
                "",
                "",
            ],
            [
                "pooling",
                "pool",
                [0],
                [5],
                {
                    "algorithm": "max",
                    "kernel": [2, 2],
                    "strides": [2, 2],
                    "dilations": [0, 0],
                    "padding_l": [0, 0],
                    "padding_r": [0, 0],
                },
                [],
                [],
                "",
                "",
            ],
            ["concat", "join", [4, 5], [6], {"axis": 1}, [], [], "", ""],
            ["reshape", "flat", [6], [7], {"shape": [11, 9], "axes": []}, [], [], "", ""],
            ["transpose", "turn", [7], [8], {"perm": [1, 0]}, [], [], "", ""],
        ],
    }
    assert [constant.nbytes for constant in constants] == [864, 32]
    assert msgpack.unpackb(msgpack.packb(wire)) == wire
    assert unused.shape == (2,)


def test_post_ops_name_the_value_that_they_combine_with() -> None:
    g = Graph("net")
    x = g.input("x", (1, 2, 4, 4))
    y = g.convolution(x, np.ones((2, 2, 1, 1), np.float32))
    g.output("y", g.eltwise(g.binary(x, y, "add"), "relu"))
    wire, _ = g.to_wire()
    (node,) = wire["nodes"]
    assert node[5] == [["binary", "add", 0], ["eltwise", "relu", 0.0, 0.0]]


def test_a_graph_may_return_its_inputs_and_constants() -> None:
    g = Graph("net")
    x = g.input("x", (2,))
    g.output("x again", x)
    g.output("view", g.reshape(np.arange(4.0), (2, 2)))
    wire, constants = g.to_wire()
    assert wire["outputs"] == [["x again", 0], ["view", 1]]
    assert wire["nodes"] == []
    assert wire["constants"] == [[1, 16]]
    assert constants[0].to_array().tolist() == [[0, 1], [2, 3]]

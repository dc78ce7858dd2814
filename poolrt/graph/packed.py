"""The wire form of a graph as bytes, and its limits: a client checks them before it sends, the coordinator on arrival."""

from __future__ import annotations

from typing import Any, Final

import msgpack

from poolrt.workers.ipc.bounded_decoding import Payload, skip_items, unpack_bounded
from poolrt.workers.ipc.channel import FRAME
from poolrt.workers.ipc.protocol import GRAPH_BYTES, NUMBERS_LIMIT

from .errors import GraphError

#: Nodes of a graph, and constants: lowering this many takes some seconds, while other loads wait.
NODES_LIMIT: Final = 20_000
#: Values of a graph: inputs, constants and results of nodes.
VALUES_LIMIT: Final = 4 * NODES_LIMIT
#: Inputs of a graph, and outputs: each run names them all in its messages.
PORTS_LIMIT: Final = NUMBERS_LIMIT
#: Bytes of a graph; the rest of its message has the name and the engines.
_BYTES: Final = GRAPH_BYTES - FRAME
#: Numbers, texts, lists and tables of a graph's wire form: about 30 a node, and less than 100 bytes of memory each.
ITEMS_LIMIT: Final = 1_000_000
#: Bytes of a name or of another text, and characters of a node's name that are sent; it is for people only.
TEXT_BYTES: Final = 4096
_NODE_NAME: Final = 1000
#: The place of the name in a node of the wire.
_NAME: Final = 1


def pack_graph(wire: dict[str, Any]) -> bytes:
    """Return the wire form of a graph as bytes. Raises GraphError that names the limit if the graph is too large."""
    name = _check_lists(wire)
    for node in wire["nodes"]:
        node[_NAME] = str(node[_NAME])[:_NODE_NAME]
    for port, _ in (*wire["inputs"], *wire["outputs"]):
        if len(str(port).encode(errors="replace")) > TEXT_BYTES:
            text = f"the name of an input or output has more than {TEXT_BYTES} bytes: {str(port)[:40]!r}..."
            raise GraphError(f"graph {name}: {text}")
    try:
        data: bytes = msgpack.packb(wire)
    except (ValueError, OverflowError, TypeError) as error:
        raise GraphError(f"a number or text of the graph cannot be sent: {error}") from error
    if len(data) > _BYTES:
        raise GraphError(f"graph {name} has {len(data)} bytes, more than {_BYTES}: load it in parts")
    if len(data) > ITEMS_LIMIT:
        try:
            skip_items(data, 0, 1, ITEMS_LIMIT)
        except ValueError:
            text = f"graph {name} has more than {ITEMS_LIMIT} numbers, texts and lists: load it in parts"
            raise GraphError(text) from None
    return data


def unpack_graph(data: bytes | Payload) -> dict[str, Any]:
    """Return the wire form of a graph. Raises GraphError if it is none, or too large."""
    try:
        wire = unpack_bounded(data, ITEMS_LIMIT, TEXT_BYTES)
    except ValueError as error:
        raise GraphError(f"malformed graph: {error}") from error
    if not isinstance(wire, dict):
        raise GraphError("malformed graph: expect a table")
    _check_lists(wire)
    return wire


def _check_lists(wire: dict[str, Any]) -> str:
    """Return the beginning of a graph's name, quoted. Raises GraphError if one of the graph's lists is too long."""
    name = repr(str(wire.get("name"))[:200])
    ports = {"inputs": PORTS_LIMIT, "outputs": PORTS_LIMIT}
    limits = {"nodes": NODES_LIMIT, "constants": NODES_LIMIT, "values": VALUES_LIMIT, **ports}
    for field, limit in limits.items():
        found = wire.get(field)
        if isinstance(found, list) and len(found) > limit:
            raise GraphError(f"graph {name} has {len(found)} {field}, more than {limit}: load it in parts")
    return name

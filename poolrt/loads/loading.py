"""Load a graph: send it, write its constants into the slots that the coordinator gives, show progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from poolrt.connection.client import Client, Request
from poolrt.connection.link import Link
from poolrt.connection.session import Session
from poolrt.errors import GraphRefused
from poolrt.graph.constant_name import LEAST_BYTES
from poolrt.graph.engine_name import engines_of
from poolrt.graph.packed import pack_graph
from poolrt.memory.shared_memory import SharedMemory
from poolrt.model import Model
from poolrt.progress import watch
from poolrt.workers.ipc.channel import Message
from poolrt.workers.ipc.protocol import NUMBERS_LIMIT, Kind

if TYPE_CHECKING:
    from poolrt.graph.builder import Graph
    from poolrt.graph.constant import Constant
    from poolrt.graph.cut_outputs import Cut

#: Characters of a graph's name that the coordinator gets, for errors.
NAME_LIMIT: Final = 200
#: Bytes of constants in one WRITTEN message, so that workers reorder some while others are written.
_BATCH: Final = 8 * 1024 * 1024


def load(
    session: Session,
    graph: Graph,
    progress: bool | Callable[[int, int, list[str]], None] | None,
    priority: int = 0,
) -> Model:
    """Load a graph; see `Pool.load`."""
    wire, constants = graph.to_wire()
    return load_wire(session, wire, constants, graph.cuts, progress, priority)


def load_wire(
    session: Session,
    wire: dict[str, Any],
    constants: Sequence[Constant],
    cuts: Mapping[str, Cut],
    progress: bool | Callable[[int, int, list[str]], None] | None,
    priority: int = 0,
) -> Model:
    """Load the wire form of a graph."""
    started = time.perf_counter()
    if wire["engine"] == "cpu" and session.settings.engine != "cpu":
        wire["engine"] = session.settings.engine
    by_value = {value: constant for (value, _), constant in zip(wire["constants"], constants, strict=True)}
    large = [(value, constant) for value, constant in by_value.items() if constant.nbytes >= LEAST_BYTES]
    if large and session.settings.constant_files_bytes:
        from poolrt.graph.constant_source import describe_source

        wire["sources"] = [[value, describe_source(constant)] for value, constant in large]
    try:
        packed, engines = pack_graph(wire), engines_of(wire)
    except ValueError as error:
        raise GraphRefused(str(error)) from error
    name = wire["name"]
    load_on = partial(_load_on, str(name)[:NAME_LIMIT], engines, priority, packed, by_value)
    wanted = session.settings.progress if progress is None else progress
    with watch(name, wanted, forced=progress is True) as show:
        link, answer = session.repeat(lambda link: (link, load_on(link, show)))
    report = {**answer[5], "load_s": time.perf_counter() - started}
    return Model(session, load_on if session.settings.keep_graphs else None, link, answer, report, name, cuts)


def _load_on(
    name: str,
    engines: list[str],
    priority: int,
    packed: bytes,
    by_value: Mapping[int, Constant],
    link: Link,
    show: Callable[[int, int, list[str]], None] = lambda total, ready, names: None,
) -> Message:
    """Load a graph on a connection and return the answer."""
    client, memory = link.client, link.memory
    if priority:
        client.rings.keep_order()
    request = client.begin(Kind.LOAD, name, engines, priority, packed, request=Request())
    try:
        while (answer := client.next_answer(request))[0] != Kind.LOADED:
            if answer[0] == Kind.PROGRESS:
                show(*answer[2:])
            else:
                _write(client, memory, request, answer, by_value)
    except BaseException:
        _cancel(client, request)
        raise
    return answer


def _cancel(client: Client, request: Request) -> None:
    """Cancel or unload a load that was interrupted, or whose progress could not be shown."""
    if request.done:
        for answer in request.answers:
            if answer[0] == Kind.LOADED:
                client.send_nowait([Kind.UNLOAD, answer[2]])
    else:
        request.settle = lambda answer: (
            client.send_nowait([Kind.UNLOAD, answer[2]]) if answer[0] == Kind.LOADED else None
        )
        client.send_nowait([Kind.CANCEL, request.number])


def _write(
    client: Client, memory: SharedMemory, request: Request, answer: Message, by_value: Mapping[int, Constant]
) -> None:
    """Write the constants that have slots, and give the pages of the model's file back that they were read from."""
    from poolrt.graph.mapped_file import file_of

    written: list[int] = []
    nbytes = 0
    for number, value, offset in answer[2]:
        constant = by_value[value]
        constant.write_into(memory.bytes_at(offset, constant.nbytes))
        file = file_of(constant.array)
        if file is not None:
            file.leave(constant.array)
        written.append(number)
        nbytes += constant.nbytes
        if nbytes >= _BATCH or len(written) == NUMBERS_LIMIT:
            client.tell(Kind.WRITTEN, request.number, written)
            written, nbytes = [], 0
    if written:
        client.tell(Kind.WRITTEN, request.number, written)

"""Drills in which a client sends damaged graphs: loaded and run, or refused by one documented error, and harmless."""

from __future__ import annotations

import copy
import os
import random
from collections import Counter
from typing import Any, Final

import msgpack
import numpy as np

import poolrt
from poolrt.cachestore.errors import CreationFailed
from poolrt.connection.client import Request
from poolrt.connection.server import connect_socket
from poolrt.errors import ArenaFull, GraphRefused, PoolClosed, PoolError, PoolRefused
from poolrt.model import Model
from poolrt.workers.ipc.channel import Channel, ChannelError
from poolrt.workers.ipc.protocol import VERSION, Kind

from ..mutations import mutated, replace_a_part
from ..poolrt.graph.every_operation import OPERATIONS, graph_of
from .pools import check_traffic, served
from .stage import DrillSkipped, Stage
from .swarm import DrillFailed
from .traffic import Traffic

#: Bound, in seconds, on an answer of the coordinator to a damaged message.
_ANSWER_S: Final = 60.0
#: Of so many graphs one is in a damaged message, whose connection ends, and one is damaged as bytes in a whole message.
_AS_BYTES: Final = 8
#: Of so many damaged graphs one is of an operation that the others do not have.
_RARELY: Final = 5
#: So many times fewer graphs are for a device, whose programs take longer to build.
_FEWER: Final = 10
#: Descriptors that a coordinator may have more after the drill: idle creators, and clients that it has yet to notice.
_SPARE_FDS: Final = 12
#: The byte before a message in one piece.
_LAST: Final = b"\0"
#: Damaged graphs of which one, at least, can be run.
_ENOUGH: Final = 100
#: What a coordinator may refuse a damaged graph with.
_REFUSALS: Final = (GraphRefused, ArenaFull, PoolRefused)


def mutate(stage: Stage) -> None:
    """Send damaged graphs, load and run those that are still graphs: nothing crashes, other clients are unharmed."""
    _mutate(stage, "cpu", stage.scale.mutations)


def mutate_for_device(stage: Stage) -> None:
    """The same with fewer graphs, for an OpenCL device."""
    from poolrt.workers.engines.opencl import count

    if not count():
        raise DrillSkipped("no OpenCL device")
    _mutate(stage, "opencl", stage.scale.mutations // _FEWER)


def _mutate(stage: Stage, engine: str, number: int) -> None:
    chance, found = stage.random, Counter[str]()
    wires = [graph.to_wire()[0] for graph in _graphs(engine)]
    # Every operation: less often, because their kernels take longer to compile.
    rarer = [graph_of(name, engine=engine).to_wire()[0] for name in OPERATIONS]
    with served(stage, workers=2, run_timeout_s=20) as path, poolrt.connect(path) as witness:
        mark = witness.empty(1 << 20, "uint8")
        mark[:] = expected = np.random.default_rng(1).integers(0, 256, 1 << 20, np.uint8)
        with Traffic(witness, ("run", "function"), pause_s=0.01) as traffic:
            pid = witness.stats()["pid"]
            begin = len(os.listdir(f"/proc/{pid}/fd"))
            attacker = poolrt.connect(path)
            for turn in range(number):
                wire = copy.deepcopy(chance.choice(wires if turn % _RARELY else rarer))
                try:
                    fields: list[Any] = [wire["name"], [engine], 0, msgpack.packb(wire)]
                    if turn % _AS_BYTES == 0:
                        whole = _LAST + msgpack.packb([Kind.LOAD, 1, *fields])
                        found[_send_bytes(path, mutated(whole, chance))] += 1
                        continue
                    if turn % _AS_BYTES == 1:
                        fields[3] = mutated(fields[3], chance)
                    else:
                        damage(wire, chance)
                        # The engines that a client names need not be those of its graph.
                        fields[1:] = [chance.choice(([engine], [engine], ["cpu"], [])), 0, msgpack.packb(wire)]
                    found[_load(stage, attacker, fields)] += 1
                except PoolClosed:
                    found["disconnected"] += 1
                    attacker.close()
                    attacker = poolrt.connect(path)
            attacker.close()
            stage.outcome.faults = number
            check_traffic(stage, traffic, share=1.0)
            stage.expect(bool((mark == expected).all()), "another client's memory was written to")
            lost = witness.stats()["workers_lost"]
            stage.expect(not lost, f"{lost} workers were lost")
            more = len(os.listdir(f"/proc/{pid}/fd")) - begin
            stage.expect(more <= _SPARE_FDS, f"the coordinator has {more} more descriptors than before")
    stage.note(", ".join(f"{count} {name}" for name, count in found.most_common()))
    # About one in seven can be run.
    stage.expect(found["run"] > 0 or number < _ENOUGH, "no damaged graph could be run")


def damage(wire: dict[str, Any], chance: random.Random) -> None:
    """Change one to three places of a graph: a number by a little, a word for another, or any part for anything."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        places = _leaves(wire)
        whole, place = chance.choice(places)
        old = whole[place]
        if chance.random() < 0.3:
            replace_a_part(wire, chance)
        elif isinstance(old, str):
            whole[place] = chance.choice([other[at] for other, at in places if isinstance(other[at], str)])
        elif isinstance(old, bool) or not isinstance(old, int | float):
            whole[place] = chance.choice((None, True, False, 0, 1))
        else:
            number = chance.choice((old + 1, old - 1, old * 2, -old, old + 0.5, 0, 1))
            # A message carries numbers of 64 bits.
            whole[place] = number if -(1 << 63) <= number < 1 << 64 or isinstance(number, float) else old


def _leaves(whole: Any) -> list[tuple[Any, Any]]:
    """Return every place of nested lists and dictionaries that holds neither."""
    found: list[tuple[Any, Any]] = []
    for place in list(whole) if isinstance(whole, dict) else range(len(whole)):
        part = whole[place]
        found += _leaves(part) if isinstance(part, dict | list) else [(whole, place)]
    return found


def _load(stage: Stage, pool: poolrt.Pool, fields: list[Any]) -> str:
    """Load a graph, given as the fields of its message, and run it once with its memory as it is.

    Return what became of it. Raises PoolClosed.
    """
    session = pool._session
    link = session.link
    try:
        request = link.client.begin(Kind.LOAD, *fields, request=Request())
        while (answer := link.client.next_answer(request))[0] != Kind.LOADED:
            if answer[0] == Kind.STAGE:
                # Constants are any bytes that the slots had before.
                link.client.tell(Kind.WRITTEN, request.number, [grant[0] for grant in answer[2]])
        model = Model(session, None, link, answer, answer[5], "damaged", {})
        try:
            model.run(**{spec.name: np.zeros(spec.shape, spec.array_dtype) for spec in model.inputs})
        finally:
            model.close()
    except PoolClosed:
        raise
    except _REFUSALS as error:
        return "refused" if isinstance(error, GraphRefused) else type(error).__name__
    except (PoolError, CreationFailed) as error:
        stage.expect(False, f"{type(error).__name__}: {str(error)[:200]}, for {fields}"[:600])
        return type(error).__name__
    return "run"


def _send_bytes(path: str, data: bytes) -> str:
    """Send a damaged message on a connection of its own; return how that ended. Raises DrillFailed without an end."""
    sock = connect_socket(path)
    channel = Channel(sock, accepts_fds=True)
    try:
        channel.send([Kind.HELLO, VERSION])
        sock.send(data)
        # The coordinator answers this, unless it has closed the connection.
        channel.send([Kind.STATISTICS, 2])
        while channel.wait(_ANSWER_S):
            message = channel.receive()
            if message is not None and message[0] == Kind.STATUS:
                return "damaged message answered"
    except ChannelError:
        return "damaged message hung up on"
    finally:
        channel.close()
    raise DrillFailed(f"no answer to a damaged message within {_ANSWER_S:g} s")


def _graphs(engine: str) -> list[poolrt.Graph]:
    """Return small graphs, each of a few operations, with constants, post-ops, scales and views."""
    random_ = np.random.default_rng(0)

    def values(*shape: int) -> Any:
        return random_.standard_normal(shape).astype(np.float32)

    found = []
    for number in range(5):
        g = poolrt.Graph(f"seed {number}", engine)
        x = g.input("x", (2, 4, 6, 6))
        if number == 0:
            y = g.eltwise(g.binary(x, values(4, 1, 1), "add"), "relu")
        elif number == 1:
            y = g.convolution(x, values(4, 4, 1, 1), values(4))
        elif number == 2:
            y = g.softmax(g.transpose(x, (0, 2, 3, 1)), axis=-1)
        elif number == 3:
            y = g.matmul(g.reshape(x, (8, 36)), values(36, 5))
        else:
            y = g.concat([g.slice(x, 0, 3, 1), g.slice(x, 1, 4, 1)], 1)
        g.output("y", y)
        found.append(g)
    return found

"""What the coordinator's state machine orders, given to clients and processes that are played, and checked."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine

from poolrt.coordinator.instructions import (
    AttachRing,
    CloseFiles,
    CollectStatistics,
    FindConstants,
    FindRingEnds,
    Forget,
    HangUp,
    Instruction,
    Kill,
    LookUp,
    Lower,
    NoteCreated,
    PrimitiveToLoad,
    Role,
    Send,
    Slow,
    Spawn,
)
from poolrt.coordinator.state import State
from poolrt.coordinator.watchdog import Limits
from poolrt.coordinator.worker_set import GIVEN_UP_S
from poolrt.workers.ipc.protocol import IN_FILE, Kind, check_message

ARENA = 400_000
RETRIES = 2
LIMITS = Limits(start_s=20.0, run_s=15.0, creation_s=25.0)
#: A constant whose file no worker can write.
REFUSED = "refused"


@dataclass
class Process:
    role: Role
    ready: bool = False
    inbox: deque[list[Any]] = field(default_factory=deque)
    #: Constants in files that runs of a model need and that it was not sent yet.
    models: dict[int, int] = field(default_factory=dict)
    functions: set[int] = field(default_factory=set)
    callers: set[int] = field(default_factory=set)
    ends: bool = False
    since: float = 0.0


@dataclass
class Client:
    unanswered: dict[int, str] = field(default_factory=dict)
    stages: dict[int, set[int]] = field(default_factory=dict)
    models: dict[int, list[int]] = field(default_factory=dict)
    slots: list[tuple[int, int]] = field(default_factory=list)
    wanted_sizes: dict[int, list[int]] = field(default_factory=dict)
    output_sizes: dict[int, list[int]] = field(default_factory=dict)
    functions: list[int] = field(default_factory=list)
    #: Rings, and those that were lost.
    rings: set[int] = field(default_factory=set)
    lost_rings: list[int] = field(default_factory=list)
    begun: set[int] = field(default_factory=set)
    ends: bool = False
    initializer: bool = False
    called: bool = False


class Orders(RuleBasedStateMachine):
    """Gives clients, workers, creators, store and system what the state machine orders, and checks it."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = itertools.count(1)
        self.state = State(
            self.numbers,
            arena_bytes=ARENA,
            workers=2,
            creators=2,
            retries=RETRIES,
            capacity=8,
            functions=True,
            limits=LIMITS,
            process=77,
            shares_constants=True,
            writes_constants=True,
        )
        self.seeking: list[FindConstants] = []
        #: Constants that have files, and the descriptors that are open.
        self.kept: set[str] = set()
        self.opened: set[int] = set()
        self.processes: dict[int, Process] = {}
        self.clients: dict[int, Client] = {}
        self.lowering: list[Lower] = []
        self.looking: list[LookUp] = []
        self.forgotten: set[int] = set()
        #: Creations that creators have finished, and those that reports of loads call created.
        self.creations = self.reported = 0
        self.primitives: dict[int, int] = {}
        self.now = 0.0
        self.deaths: dict[int, int] = {}
        #: Whether a caller waits no longer for some run.
        self.given_up = False
        #: Rings that workers serve: their worker and client; and those that a worker is to detach.
        self.rings: dict[int, tuple[int, int]] = {}
        self.detaching: list[tuple[int, int]] = []
        #: Workers, rings and models that the worker is to accept.
        self.allowing: list[tuple[int, int, int]] = []
        #: Workers and the clients whose initializers they were sent.
        self.prepared: set[tuple[int, int]] = set()

    def carry_out(self, instructions: list[Instruction]) -> None:
        for step in instructions:
            if isinstance(step, Send):
                check_message([int(step.message[0]), *step.message[1:]])
                if step.peer in self.processes:
                    self.deliver(step.peer, step.message)
                elif step.peer in self.clients:
                    self.answer(self.clients[step.peer], step.message)
            elif isinstance(step, Spawn):
                assert step.peer not in self.processes
                self.processes[step.peer] = Process(step.role, since=self.now)
            elif isinstance(step, Lower):
                self.lowering.append(step)
            elif isinstance(step, LookUp):
                self.looking.append(step)
            elif isinstance(step, FindConstants):
                self.seeking.append(step)
            elif isinstance(step, FindRingEnds):
                primitive = PrimitiveToLoad("ends", "ring_ends", [], 0.3)
                self.carry_out(self.state.on_ring_ends(primitive, b"ends", frozenset()))
            elif isinstance(step, CloseFiles):
                assert self.opened.issuperset(step.descriptors), "a file is closed once"
                self.opened.difference_update(step.descriptors)
            elif isinstance(step, Forget):
                self.forgotten.add(step.load)
            elif isinstance(step, HangUp):
                process = self.processes[step.peer]  # no client of ours breaks the rules
                assert process.role is Role.CREATOR
                assert not process.inbox
                del self.processes[step.peer]
                self.carry_out(self.state.on_process_exited(step.peer))
            elif isinstance(step, Kill):
                self.end(step.peer)
            elif isinstance(step, AttachRing):
                pair = (step.ring.worker, step.ring.client)
                assert pair not in self.rings.values(), "a client has one ring to each worker"
                assert self.processes[step.ring.worker].ready
                self.rings[step.ring.number] = pair
                self.clients[step.ring.client].rings.add(step.ring.number)
            else:
                assert isinstance(step, CollectStatistics | NoteCreated | Slow)

    def end(self, number: int) -> None:
        """No process of ours breaks the rules, so one that is killed has been at the same thing for too long."""
        process = self.processes[number]
        limit = LIMITS.start_s
        if process.ready:
            kind = process.inbox[0][0]
            assert kind != Kind.APPLY, "a function may take as long as it likes"
            if kind != Kind.PROBE:
                limit = LIMITS.creation_s if kind == Kind.CREATE else LIMITS.run_s
            if kind == Kind.EXECUTE and self.given_up:
                limit = GIVEN_UP_S
        assert self.now - process.since >= limit
        self.remove(number)

    def deliver(self, number: int, message: list[Any]) -> None:
        process = self.processes[number]
        kind = message[0]
        if kind == Kind.MODEL:
            process.models[message[1]] = message[4].count(IN_FILE)
            return
        if kind == Kind.FILES:
            assert message[2] == 77
            assert process.models[message[1]] == len(message[3])
            assert self.opened.issuperset(descriptor for _, descriptor, _ in message[3]), "what is mapped is open"
            process.models[message[1]] = 0
            return
        if kind == Kind.DROP:
            del process.models[message[1]]
            return
        if kind in (Kind.LEAVE, Kind.FORGET):
            (process.callers if kind == Kind.LEAVE else process.functions).remove(message[1])
            return
        assert process.ready
        if kind == Kind.ALLOW:
            assert self.rings[message[1]][0] == number
            assert process.models[message[2]] == 0, (
                "a worker is sent a model and its constants before a client may run it"
            )
            self.allowing.append((number, *message[1:3]))
            return
        if kind == Kind.RING_ENDS:
            assert not process.ends, "a worker is sent the compiled ends once"
            process.ends = True
            return
        if kind == Kind.DETACH:
            self.detaching.append((number, message[1]))
            return
        if kind == Kind.FUNCTION_BODY:
            assert message[1] not in process.functions, "a worker is sent a function once"
            process.functions.add(message[1])
            return
        if kind == Kind.PREPARE:
            assert message[1] not in process.callers, "a worker calls a client's initializer once"
            assert message[2] in process.functions
            self.prepared.add((number, message[1]))
            return
        if kind == Kind.APPLY:
            assert not message[3] or message[3] in process.functions, "a worker is sent a function before it calls it"
            caller = self.clients.get(message[2])
            ready = {(number, message[2])} & self.prepared or message[2] in process.callers
            assert caller is None or not caller.initializer or ready, "a worker calls a client's initializer first"
            process.callers.add(message[2])
        if kind in (Kind.EXECUTE, Kind.REORDER, Kind.KEEP):
            assert message[2] in process.models, "a worker is sent a model before it needs it"
            assert kind != Kind.EXECUTE or not process.models[message[2]], "a run has all constants"
            assert kind != Kind.REORDER or message[5] != IN_FILE
            writes = set(message[4]) if kind == Kind.EXECUTE else {message[5]} if kind == Kind.REORDER else set()
            for other in self.processes.values():
                for busy in other.inbox:
                    assert not writes & self.touched(busy), "a slot that a living worker uses was handed out again"
        process.inbox.append(message)
        if len(process.inbox) == 1:
            process.since = self.now
        if process.role is Role.CREATOR:
            assert len(process.inbox) == 1
        else:
            assert len(process.inbox) <= 2
            assert len(process.inbox) == 1 or all(m[0] != Kind.APPLY for m in process.inbox)

    @staticmethod
    def touched(message: list[Any]) -> set[int]:
        if message[0] == Kind.EXECUTE:
            return {*message[3], *message[4]}
        return (
            {message[4], message[5]}
            if message[0] == Kind.REORDER
            else {message[4]}
            if message[0] == Kind.KEEP
            else set()
        )

    def answer(self, client: Client, message: list[Any]) -> None:
        kind, request = message[0], message[1]
        if kind == Kind.RING_MODEL:
            assert request in client.rings
            assert message[2] in client.models
            return
        if kind == Kind.RING_FIRST:
            assert request in client.rings
            return
        if kind == Kind.RING_LOST:
            client.rings.remove(request)
            client.lost_rings.append(request)
            assert request not in self.rings, "a ring is lost once its worker has exited"
            return
        if kind == Kind.RING_ENDS:
            assert not client.ends, "a client is sent the compiled ends once"
            client.ends = True
            return
        assert request in client.unanswered, "a request is answered once"
        if kind == Kind.STAGE:
            client.stages.setdefault(request, set()).update(index for index, _, _ in message[2])
            return
        if kind == Kind.PROGRESS:
            assert 0 <= message[3] <= message[2]
            return
        if kind == Kind.BEGUN:
            client.begun.add(request)
            return
        wanted = client.unanswered.pop(request)
        if kind == Kind.WITHDRAWN:
            withdrawn = int(wanted)
            if message[2]:
                assert withdrawn not in client.begun, "what has begun is not withdrawn"
                client.unanswered.pop(withdrawn)
                client.wanted_sizes.pop(withdrawn, None)
            return
        client.stages.pop(request, None)
        if kind == Kind.LOADED:
            assert wanted == "load"
            client.models[message[2]] = [port[3] for port in message[3]]
            client.output_sizes[message[2]] = [port[3] for port in message[4]]
            counts = message[5]["primitives"]
            assert counts["total"] == sum(count for name, count in counts.items() if name != "total")
            self.reported += counts["created"]
            assert self.reported <= self.creations, "a creation is reported as one load's"
        elif kind == Kind.DONE:
            assert wanted == "run"
            client.slots += zip(message[2], client.wanted_sizes.pop(request), strict=True)
        elif kind == Kind.ALLOCATED:
            assert wanted == "allocate"
            client.slots += zip(message[2], client.wanted_sizes.pop(request), strict=True)
        elif kind in (Kind.RETURNED, Kind.RAISED):
            assert wanted == "call"
        else:
            assert kind == Kind.FAILED

    def remove(self, number: int) -> None:
        """Let a process exit."""
        raise NotImplementedError

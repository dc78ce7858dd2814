"""The coordinator's state machine under any order of events: nothing is lost, doubled, or used by two at once."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from poolrt.coordinator.instructions import (
    CloseFiles,
    CollectStatistics,
    FindConstants,
    Forget,
    HangUp,
    Instruction,
    Kill,
    LookUp,
    Lower,
    LoweredGraph,
    NoteCreated,
    PrimitiveToLoad,
    Role,
    Send,
    Slow,
    Spawn,
)
from poolrt.coordinator.state import State
from poolrt.coordinator.watchdog import Limits
from poolrt.errors import GraphRefused
from poolrt.workers.ipc.protocol import IN_FILE, Kind, check_message
from poolrt.workers.plans.execution_plan import PlanConstant

_ARENA = 400_000
_RETRIES = 2
_LIMITS = Limits(start_s=20.0, run_s=15.0, creation_s=25.0)
#: A constant whose file no worker can write.
_REFUSED = "refused"


@dataclass
class _Process:
    role: Role
    ready: bool = False
    inbox: deque[list[Any]] = field(default_factory=deque)
    #: Constants in files that runs of a model need and that it was not sent yet.
    models: dict[int, int] = field(default_factory=dict)
    functions: set[int] = field(default_factory=set)
    callers: set[int] = field(default_factory=set)
    since: float = 0.0


@dataclass
class _Client:
    unanswered: dict[int, str] = field(default_factory=dict)
    stages: dict[int, set[int]] = field(default_factory=dict)
    models: dict[int, list[int]] = field(default_factory=dict)
    slots: list[tuple[int, int]] = field(default_factory=list)
    wanted_sizes: dict[int, list[int]] = field(default_factory=dict)
    output_sizes: dict[int, list[int]] = field(default_factory=dict)
    functions: list[int] = field(default_factory=list)
    begun: set[int] = field(default_factory=set)
    initializer: bool = False
    called: bool = False


class Coordination(RuleBasedStateMachine):
    """Plays clients, workers, creators, store and system against the state machine, and checks what it orders."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = itertools.count(1)
        self.state = State(
            self.numbers,
            arena_bytes=_ARENA,
            workers=2,
            creators=2,
            retries=_RETRIES,
            capacity=8,
            functions=True,
            limits=_LIMITS,
            process=77,
            shares_constants=True,
            writes_constants=True,
        )
        self.seeking: list[FindConstants] = []
        #: Constants that have files, and the descriptors that are open.
        self.kept: set[str] = set()
        self.opened: set[int] = set()
        self.processes: dict[int, _Process] = {}
        self.clients: dict[int, _Client] = {}
        self.lowering: list[Lower] = []
        self.looking: list[LookUp] = []
        self.forgotten: set[int] = set()
        #: Creations that creators have finished, and those that reports of loads call created.
        self.creations = self.reported = 0
        self.primitives: dict[int, int] = {}
        self.now = 0.0
        self.deaths: dict[int, int] = {}
        #: Workers and the clients whose initializers they were sent.
        self.prepared: set[tuple[int, int]] = set()

    @initialize()
    def start(self) -> None:
        self.carry_out(self.state.start())
        assert sum(p.role is Role.WORKER for p in self.processes.values()) == 2

    # What the state machine orders

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
                self.processes[step.peer] = _Process(step.role, since=self.now)
            elif isinstance(step, Lower):
                self.lowering.append(step)
            elif isinstance(step, LookUp):
                self.looking.append(step)
            elif isinstance(step, FindConstants):
                self.seeking.append(step)
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
            else:
                assert isinstance(step, CollectStatistics | NoteCreated | Slow)

    def end(self, number: int) -> None:
        """No process of ours breaks the rules, so one that is killed has been at the same thing for too long."""
        process = self.processes[number]
        limit = _LIMITS.start_s
        if process.ready:
            kind = process.inbox[0][0]
            assert kind != Kind.APPLY, "a function may take as long as it likes"
            if kind != Kind.PROBE:
                limit = _LIMITS.creation_s if kind == Kind.CREATE else _LIMITS.run_s
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

    def answer(self, client: _Client, message: list[Any]) -> None:
        kind, request = message[0], message[1]
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

    # What clients do

    clients_joined: Bundle[int] = Bundle("clients_joined")

    @rule(target=clients_joined)
    def join(self) -> int:
        number = next(self.numbers)
        self.clients[number] = _Client()
        self.carry_out(self.state.on_client_connected(number))
        return number

    def say(self, number: int, kind: Kind, wanted: str, *fields: Any) -> int:
        request = next(self.numbers)
        self.clients[number].unanswered[request] = wanted
        self.clients[number].called |= kind is Kind.CALL
        self.carry_out(self.state.on_client_message(number, kind, [kind, request, *fields]))
        return request

    @rule(number=clients_joined)
    def leave(self, number: int) -> None:
        if self.clients.pop(number, None) is not None:
            self.carry_out(self.state.on_client_disconnected(number))
            assert ("client", number) not in self.state.leases.holders()

    @rule(number=clients_joined, engine=st.sampled_from(["cpu", "opencl:0"]))
    def load(self, number: int, engine: str) -> None:
        if number in self.clients:
            self.say(number, Kind.LOAD, "load", "g", [engine], b"graph")

    @rule(number=clients_joined, runs=st.integers(0, 7))
    def load_in_peace_and_run(self, number: int, runs: int) -> None:
        """A client has a model that is ready, and several runs of it under way: where the interesting things begin."""
        client = self.clients.get(number)
        if client is None:
            return
        before = set(client.models)
        self.say(number, Kind.LOAD, "load", "g", ["cpu"], b"graph")
        self.settle()
        for model in set(client.models) - before:
            self.allocate(number, client.models[model])
            fit = [offset for offset, nbytes in client.slots if nbytes >= client.models[model][0]]
            for _ in range(runs if fit else 0):
                self.run_on(number, model, fit[-1:])

    @rule(number=clients_joined, data=st.data())
    def write_constants(self, number: int, data: st.DataObject) -> None:
        client = self.clients.get(number)
        if client is not None and client.stages:
            request = data.draw(st.sampled_from(sorted(client.stages)))
            waiting = client.stages.pop(request)
            self.carry_out(self.state.on_client_message(number, Kind.WRITTEN, [Kind.WRITTEN, request, sorted(waiting)]))

    @rule(number=clients_joined, sizes=st.lists(st.integers(0, 40_000), min_size=1, max_size=2))
    def allocate(self, number: int, sizes: list[int]) -> None:
        client = self.clients.get(number)
        if client is not None:
            request = next(self.numbers)
            client.unanswered[request] = "allocate"
            client.wanted_sizes[request] = sizes
            self.carry_out(self.state.on_client_message(number, Kind.ALLOCATE, [Kind.ALLOCATE, request, sizes]))

    @rule(number=clients_joined, data=st.data())
    def run(self, number: int, data: st.DataObject) -> None:
        client = self.clients.get(number)
        if client is None or not client.models:
            return
        model = data.draw(st.sampled_from(sorted(client.models)))
        inputs = []
        for size in client.models[model]:
            fit = [offset for offset, nbytes in client.slots if nbytes >= size]
            if not fit:
                return
            inputs.append(data.draw(st.sampled_from(fit)))
        self.run_on(number, model, inputs)

    def run_on(self, number: int, model: int, inputs: list[int]) -> None:
        client = self.clients[number]
        request = next(self.numbers)
        client.unanswered[request] = "run"
        client.wanted_sizes[request] = client.output_sizes[model]
        self.carry_out(self.state.on_client_message(number, Kind.RUN, [Kind.RUN, request, model, inputs, []]))

    @rule(number=clients_joined)
    def call(self, number: int) -> None:
        if number in self.clients:
            self.say(number, Kind.CALL, "call", 0, b"function")

    @rule(number=clients_joined, what=st.sampled_from([Kind.FUNCTION, Kind.DISCARD, Kind.INITIALIZER, Kind.CALL]))
    def use_functions(self, number: int, what: Kind) -> None:
        client = self.clients.get(number)
        if client is not None and what is Kind.FUNCTION:
            client.functions.append(next(self.numbers))
            self.tell(number, what, client.functions[-1], b"function")
        elif client is not None and client.functions:
            if what is Kind.DISCARD:
                self.tell(number, what, client.functions.pop(0))
            elif what is Kind.CALL:
                self.say(number, what, "call", client.functions[-1], b"arguments")
            elif not client.initializer and not client.called:
                client.initializer = True
                self.tell(number, what, client.functions[0], b"arguments")

    @rule(number=clients_joined, data=st.data())
    def withdraw(self, number: int, data: st.DataObject) -> None:
        client = self.clients.get(number)
        waiting = [r for r, wanted in client.unanswered.items() if wanted in ("call", "run")] if client else []
        if waiting:
            request = data.draw(st.sampled_from(sorted(waiting)))
            self.say(number, Kind.WITHDRAW, str(request), request)

    def tell(self, number: int, kind: Kind, *fields: Any) -> None:
        self.carry_out(self.state.on_client_message(number, kind, [kind, *fields]))

    @rule(number=clients_joined, data=st.data())
    def release(self, number: int, data: st.DataObject) -> None:
        client = self.clients.get(number)
        if client is not None and client.slots:
            place = data.draw(st.integers(0, len(client.slots) - 1))
            offset, _ = client.slots.pop(place)
            self.carry_out(self.state.on_client_message(number, Kind.RELEASE, [Kind.RELEASE, [offset]]))

    @rule(number=clients_joined, data=st.data())
    def unload(self, number: int, data: st.DataObject) -> None:
        client = self.clients.get(number)
        if client is not None and client.models:
            model = data.draw(st.sampled_from(sorted(client.models)))
            del client.models[model]
            self.carry_out(self.state.on_client_message(number, Kind.UNLOAD, [Kind.UNLOAD, model]))

    # What the helper thread answers

    @precondition(lambda self: self.lowering)
    @rule(data=st.data())
    def lower(self, data: st.DataObject) -> None:
        task = self.lowering.pop(0)
        if data.draw(st.integers(0, 9)) == 0:
            self.carry_out(self.state.on_load_failed(task.load, GraphRefused("node")))
            return
        digests = data.draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4, unique=True))
        named = st.sampled_from(["", "one", "two", _REFUSED])
        sizes = data.draw(st.lists(st.tuples(st.integers(1, 30_000), st.booleans(), named), max_size=3))
        inputs, outputs = data.draw(st.integers(0, 20_000)), data.draw(st.integers(0, 60_000))
        self.lower_one(task, "".join(digests), sizes, inputs, outputs)

    def lower_one(
        self, task: Lower, digests: str, sizes: list[tuple[int, bool, str]], inputs: int, outputs: int
    ) -> None:
        primitives = tuple(PrimitiveToLoad(d, f"primitive {d}", [d], float(ord(d))) for d in digests)
        constants = tuple(PlanConstant(i, n, n, 0 if moves else None) for i, (n, moves, _) in enumerate(sizes))
        ports = [["x", [4], "f32", inputs]], [["y", [4], "f32", outputs]]
        self.primitives[task.load] = len(primitives)
        names = tuple(name for _, _, name in sizes)
        graph = LoweredGraph(b"", 1, primitives, constants, *ports, names=names)
        self.carry_out(self.state.on_lowered(task.load, graph))

    @precondition(lambda self: self.looking)
    @rule(data=st.data())
    def look_up(self, data: st.DataObject) -> None:
        task = self.looking.pop(0)
        found = data.draw(st.lists(st.sampled_from(task.primitives), unique=True))
        self.carry_out(self.state.on_looked_up(task.load, dict.fromkeys(found, (b"entry", "files"))))

    @precondition(lambda self: self.seeking)
    @rule(evicts=st.booleans())
    def find_constants(self, evicts: bool) -> None:
        task = self.seeking.pop(0)
        if evicts:
            self.kept.clear()
        found = {index: next(self.numbers) if name in self.kept else -1 for index, name, _ in task.constants}
        self.opened.update(descriptor for descriptor in found.values() if descriptor >= 0)
        self.carry_out(self.state.on_constants_found(task.load, found))

    # What processes do

    @precondition(lambda self: any(not p.ready for p in self.processes.values()))
    @rule(data=st.data())
    def come_up(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(n for n, p in self.processes.items() if not p.ready)))
        self.processes[number].ready = True
        self.processes[number].since = self.now
        self.carry_out(self.state.on_process_message(number, Kind.READY, [Kind.READY, number, 1]))

    @precondition(lambda self: any(p.inbox for p in self.processes.values()))
    @rule(data=st.data(), well=st.integers(0, 5))
    def finish(self, data: st.DataObject, well: int) -> None:
        number = data.draw(st.sampled_from(sorted(n for n, p in self.processes.items() if p.inbox)))
        message = self.processes[number].inbox.popleft()
        self.finish_one(number, message, bool(well))

    def finish_one(self, number: int, message: list[Any], well: bool) -> None:
        kind, token = message[0], message[1]
        self.processes[number].since = self.now
        if not well:
            answer = [Kind.BROKEN, token, "ValueError", "text", "log"]
            if kind == Kind.APPLY:
                answer = [Kind.THREW, token, "text", b""]
        elif kind == Kind.CREATE:
            answer = [Kind.CREATED, token, b"entry", "created", 0.1]
            self.creations += 1
        elif kind == Kind.PROBE:
            answer = [Kind.ANSWER, token, False, ["opencl", "opencl", []]]
        elif kind == Kind.APPLY:
            answer = [Kind.ANSWER, token, False, b"value"]
        else:
            answer = [Kind.FINISHED, token, False]
            if kind == Kind.KEEP and message[5] != _REFUSED:
                self.kept.add(message[5])
        self.deaths.pop(token, None)
        self.carry_out(self.state.on_process_message(number, answer[0], answer))

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        self.remove(data.draw(st.sampled_from(sorted(self.processes))))

    def remove(self, number: int) -> None:
        process = self.processes.pop(number)
        if process.inbox and process.inbox[0][0] == Kind.EXECUTE:
            token = process.inbox[0][1]
            self.deaths[token] = self.deaths.get(token, 0) + 1
            assert self.deaths[token] <= _RETRIES + 1, "a run is not repeated for ever"
        self.carry_out(self.state.on_process_exited(number))

    @rule(seconds=st.floats(0.1, 10))
    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.carry_out(self.state.on_tick(self.now))
        for offset, size in self.state.trim(0):
            assert all(not offset <= o < offset + size for c in self.clients.values() for o, _ in c.slots)

    # What always holds

    @invariant()
    def slots_of_clients_are_their_own(self) -> None:
        for number, client in self.clients.items():
            for offset, nbytes in client.slots:
                assert self.state.leases.holds(("client", number), offset, nbytes)

    @invariant()
    def workers_are_replaced(self) -> None:
        if not self.state.worker_set._backing_off and self.processes:
            assert sum(p.role is Role.WORKER for p in self.processes.values()) == 2

    @invariant()
    def what_is_known_of_loads_is_dropped_in_the_end(self) -> None:
        known = set(self.primitives) - self.forgotten
        assert known <= set(self.state.loads.under_way) | {task.load for task in self.looking}

    def settle(self) -> None:
        """Let everything run its course."""
        for _ in range(10_000):
            number = next((n for n, p in self.processes.items() if not p.ready), None)
            busy = next((n for n, p in self.processes.items() if p.inbox), None)
            if number is not None:
                self.processes[number].ready = True
                self.carry_out(self.state.on_process_message(number, Kind.READY, [Kind.READY, number, 1]))
            elif busy is not None:
                self.finish_one(busy, self.processes[busy].inbox.popleft(), True)
            elif self.lowering:
                self.lower_one(self.lowering.pop(0), "ab", [(5000, True, ""), (3000, False, "one")], 1000, 20_000)
            elif self.seeking:
                self.find_constants(evicts=False)
            elif self.looking:
                self.carry_out(self.state.on_looked_up(self.looking.pop(0).load, {}))
            elif any(c.stages for c in self.clients.values()):
                owner = next(n for n, c in self.clients.items() if c.stages)
                request, waiting = self.clients[owner].stages.popitem()
                self.carry_out(
                    self.state.on_client_message(owner, Kind.WRITTEN, [Kind.WRITTEN, request, sorted(waiting)])
                )
            else:
                return
        raise AssertionError("it never comes to rest")

    def teardown(self) -> None:
        """When all has run its course each request is answered, and when all clients leave all memory is free."""
        self.settle()
        assert all(not client.unanswered for client in self.clients.values()), "every request is answered"
        for number in list(self.clients):
            del self.clients[number]
            self.carry_out(self.state.on_client_disconnected(number))
        assert self.state.leases.holders() == []
        assert self.state.leases.allocator.used == 0
        assert all(not p.models for p in self.processes.values())
        assert not self.opened, "files of models that nobody has are closed"
        assert all(not p.functions and not p.callers for p in self.processes.values())


TestCoordination = Coordination.TestCase
TestCoordination.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)

"""The coordinator's state machine under any order of events: nothing is lost, doubled, or used by two at once."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, initialize, invariant, precondition, rule

from poolrt.coordinator.instructions import (
    LookedUp,
    Lower,
    LoweredGraph,
    PrimitiveToLoad,
    Role,
)
from poolrt.errors import GraphRefused
from poolrt.workers.ipc.protocol import Kind
from poolrt.workers.plans.execution_plan import PlanConstant

from .orders import REFUSED, RETRIES, Client, Orders


class Coordination(Orders):
    """Plays clients, workers, creators, store and system against the state machine, and checks what it orders."""

    @initialize()
    def start(self) -> None:
        self.carry_out(self.state.start())
        assert sum(p.role is Role.WORKER for p in self.processes.values()) == 2

    # What clients do

    clients_joined: Bundle[int] = Bundle("clients_joined")

    @rule(target=clients_joined)
    def join(self) -> int:
        number = next(self.numbers)
        self.clients[number] = Client()
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
            self.say(number, Kind.LOAD, "load", "g", [engine], 0, b"graph")

    @rule(number=clients_joined, runs=st.integers(0, 7))
    def load_in_peace_and_run(self, number: int, runs: int) -> None:
        """A client has a model that is ready, and several runs of it under way: where the interesting things begin."""
        client = self.clients.get(number)
        if client is None:
            return
        before = set(client.models)
        self.say(number, Kind.LOAD, "load", "g", ["cpu"], 0, b"graph")
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

    @precondition(lambda self: any(client.lost_rings for client in self.clients.values()))
    @rule(data=st.data())
    def run_again(self, data: st.DataObject) -> None:
        """A client sends a run that was lost with a ring."""
        number = data.draw(st.sampled_from(sorted(n for n, c in self.clients.items() if c.lost_rings)))
        client = self.clients[number]
        for model, sizes in client.models.items():
            inputs = [next((offset for offset, nbytes in client.slots if nbytes >= size), None) for size in sizes]
            if None not in inputs:
                request, ring = next(self.numbers), client.lost_rings.pop()
                client.unanswered[request] = "run"
                client.wanted_sizes[request] = client.output_sizes[model]
                message = [Kind.RERUN, request, model, inputs, [], ring]
                self.carry_out(self.state.on_client_message(number, Kind.RERUN, message))
                return

    @precondition(lambda self: self.allowing)
    @rule()
    def allow(self) -> None:
        number, ring, model = self.allowing.pop(0)
        self.carry_out(self.state.on_process_message(number, Kind.ALLOWED, [Kind.ALLOWED, ring, model]))

    @precondition(lambda self: self.detaching)
    @rule()
    def detach(self) -> None:
        number, ring = self.detaching.pop(0)
        del self.rings[ring]
        self.carry_out(self.state.on_process_message(number, Kind.DETACHED, [Kind.DETACHED, ring]))

    @rule(number=clients_joined)
    def call(self, number: int) -> None:
        if number in self.clients:
            self.say(number, Kind.CALL, "call", 0, 0, b"function")

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
                self.say(number, what, "call", client.functions[-1], client.functions[-1] % 3 - 1, b"arguments")
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

    @rule(number=clients_joined, data=st.data())
    def give_up(self, number: int, data: st.DataObject) -> None:
        client = self.clients.get(number)
        waiting = [r for r, wanted in client.unanswered.items() if wanted == "run"] if client else []
        if waiting:
            self.given_up = True
            self.tell(number, Kind.GIVE_UP, data.draw(st.sampled_from(sorted(waiting))), 0, 0)

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
        named = st.sampled_from(["", "one", "two", REFUSED])
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
        self.carry_out(self.state.on_looked_up(task.load, LookedUp(dict.fromkeys(found, (b"entry", "files")))))

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
            if kind == Kind.KEEP and message[5] != REFUSED:
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
            assert self.deaths[token] <= RETRIES + 1, "a run is not repeated for ever"
        self.allowing = [each for each in self.allowing if each[0] != number]
        self.detaching = [(worker, ring) for worker, ring in self.detaching if worker != number]
        self.rings = {ring: pair for ring, pair in self.rings.items() if pair[0] != number}
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
                self.carry_out(self.state.on_looked_up(self.looking.pop(0).load, LookedUp()))
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
        while self.detaching:
            self.detach()
        assert not self.rings
        assert self.state.leases.holders() == []
        assert self.state.leases.allocator.used == 0
        assert all(not p.models for p in self.processes.values())
        assert not self.opened, "files of models without a client are closed"
        assert all(not p.functions and not p.callers for p in self.processes.values())


TestCoordination = Coordination.TestCase
TestCoordination.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)

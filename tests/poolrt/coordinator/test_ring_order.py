"""Clients begin with different workers as workers and clients come and go: found from the messages that clients get."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from poolrt.coordinator.call_rings import CallRings
from poolrt.coordinator.functions import Functions
from poolrt.coordinator.instructions import AttachCalls, AttachRing, Instruction, Send
from poolrt.coordinator.jobs import Model
from poolrt.coordinator.leases import Leases
from poolrt.coordinator.rings import GRANTED_AFTER, Rings
from poolrt.coordinator.worker import Worker
from poolrt.memory.arena import Allocator
from poolrt.workers.ipc.protocol import Kind, check_message


class _Clients:
    """Clients with a model and a function each, which keep the orders of their rings as clients do, and the workers of a pool."""

    def __init__(self, workers: int) -> None:
        self.numbers = itertools.count(1)
        self.out: list[Instruction] = []
        self.workers: dict[int, Worker] = {}
        self.ordered: set[int] = set()
        self.rings = Rings(self.workers, self.numbers, self.out, lambda worker, model: None, self.ordered)
        self.functions = Functions(self.numbers, self.workers, self.out)
        self.calls = CallRings(self.workers, self.numbers, self.functions, Leases(Allocator(1 << 20)), self.out)
        #: The rings of runs and of calls of each client, in its order: number -> worker.
        self.orders: dict[int, dict[int, int]] = {}
        self.call_orders: dict[int, dict[int, int]] = {}
        self.moved = 0
        for _ in range(workers):
            self.start()

    def start(self) -> int:
        """Let a worker start."""
        worker = self.spawn()
        self.mark_ready(worker)
        return worker

    def spawn(self) -> int:
        number = next(self.numbers)
        self.workers[number] = Worker(number)
        return number

    def mark_ready(self, number: int) -> None:
        self.workers[number].ready = True
        self.rings.add_worker(self.workers[number])
        self.calls.add_worker(self.workers[number])
        self.play()

    def lose(self, number: int) -> None:
        """Let a worker exit."""
        del self.workers[number]
        self.rings.reap(number, "SIGKILL", overdue=False)
        self.calls.reap(number, "SIGKILL")
        self.play()

    def join(self) -> int:
        """Let a client connect, run its model by messages until it gets rings, and ask for rings of calls."""
        number = next(self.numbers)
        self.orders[number], self.call_orders[number] = {}, {}
        model = Model(next(self.numbers), number, "g", 1, b"", [], [], [16], [16])
        for _ in range(GRANTED_AFTER):
            self.rings.count_run(model)
        self.functions.add(number, 1, b"function")
        self.calls.grant(number, 1)
        self.play()
        return number

    def leave(self, number: int) -> None:
        """Let a client disconnect, and its workers detach its rings."""
        self.rings.withdraw(number)
        for ring, worker in self.orders.pop(number).items():
            self.rings.handle(worker, Kind.DETACHED, [Kind.DETACHED, ring])
        self.calls.withdraw(number)
        for ring, worker in self.call_orders.pop(number).items():
            self.calls.handle(worker, Kind.DETACHED_CALLS, [Kind.DETACHED_CALLS, ring])
        self.play()

    def play(self) -> None:
        for step in self.out:
            if isinstance(step, AttachRing):
                self.orders[step.ring.client][step.ring.number] = step.ring.worker
            elif isinstance(step, AttachCalls):
                self.call_orders[step.ring.client][step.ring.number] = step.ring.worker
            elif isinstance(step, Send) and step.peer in self.orders:
                check_message([int(step.message[0]), *step.message[1:]])
                kind, ring = step.message[:2]
                of_runs = kind in (Kind.RING_FIRST, Kind.RING_LOST)
                orders = self.orders if of_runs else self.call_orders
                if kind in (Kind.RING_FIRST, Kind.CALL_RING_FIRST):
                    orders[step.peer] = {ring: orders[step.peer][ring], **orders[step.peer]}
                    self.moved += of_runs
                elif kind in (Kind.RING_LOST, Kind.CALLS_LOST):
                    del orders[step.peer][ring]
        self.out.clear()

    def first(self, client: int) -> int:
        """Return the worker with which the runs of a client begin."""
        return next(iter(self.orders[client].values()))

    @property
    def firsts(self) -> list[int]:
        """How many clients begin with each worker, the fewest first: of runs, or of calls if those differ more."""
        found = []
        for orders, without in ((self.orders, self.ordered), (self.call_orders, set[int]())):
            firsts = [next(iter(orders[client].values())) for client in orders if client not in without]
            found.append(sorted(firsts.count(number) for number, worker in self.workers.items() if worker.ready))
        return max(found, key=lambda counts: counts[-1] - counts[0])


def test_a_client_begins_with_another_worker_than_those_before_it_although_one_has_left() -> None:
    pool = _Clients(2)
    first, second = pool.join(), pool.join()
    assert pool.firsts == [1, 1]
    pool.leave(first)
    third = pool.join()
    assert pool.first(third) != pool.first(second)
    assert pool.moved == 0


def test_clients_that_come_while_one_worker_is_ready_share_those_that_start_later() -> None:
    pool = _Clients(1)
    later = pool.spawn(), pool.spawn()
    clients = [pool.join() for _ in range(6)]
    assert {pool.first(client) for client in clients} == {pool.first(clients[0])}
    pool.mark_ready(later[0])
    assert pool.firsts == [3, 3]
    pool.mark_ready(later[1])
    assert pool.firsts == [2, 2, 2]
    assert pool.moved == 5


def test_clients_of_a_lost_worker_begin_with_its_replacement() -> None:
    pool = _Clients(2)
    clients = [pool.join(), pool.join()]
    pool.lose(pool.first(clients[0]))
    assert pool.firsts == [2]
    pool.start()
    assert pool.firsts == [1, 1]
    assert pool.moved == 1


def test_clients_that_remain_share_the_workers() -> None:
    pool = _Clients(2)
    clients = [pool.join() for _ in range(4)]
    begin_alike = [client for client in clients if pool.first(client) == pool.first(clients[0])]
    for client in begin_alike:
        pool.leave(client)
    assert pool.firsts == [1, 1]


def test_clients_whose_runs_go_by_messages_and_workers_that_are_to_exit_do_not_count() -> None:
    pool = _Clients(2)
    ordered = pool.join()
    pool.ordered.add(ordered)
    clients = [pool.join() for _ in range(2)]
    assert {pool.first(client) for client in clients} == {*pool.workers}
    doomed = pool.first(clients[0])
    pool.workers[doomed].doomed = True
    assert pool.first(pool.join()) != doomed
    pool.lose(doomed)
    pool.start()
    assert pool.firsts == [1, 2]


@given(
    st.lists(st.tuples(st.sampled_from(["join", "join", "leave", "lose", "start"]), st.integers(0, 100)), max_size=60)
)
def test_no_worker_is_the_first_of_two_more_clients_than_another_after_any_events(
    events: list[tuple[str, int]],
) -> None:
    pool = _Clients(3)
    for event, drawn in events:
        if event == "join":
            pool.join()
        elif event == "leave" and pool.orders:
            pool.leave([*pool.orders][drawn % len(pool.orders)])
        elif event == "lose" and len(pool.workers) > 1:
            pool.lose([*pool.workers][drawn % len(pool.workers)])
        elif event == "start" and len(pool.workers) < 4:
            pool.start()
        assert pool.firsts[-1] - pool.firsts[0] <= 1
        for order in (*pool.orders.values(), *pool.call_orders.values()):
            assert set(order.values()) == set(pool.workers)

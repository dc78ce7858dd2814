"""One run of a model: on a ring or by messages, waited for or with a future, and again after the loss of a worker or server."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from poolrt.connection.client import Client, Request
from poolrt.connection.link import Link
from poolrt.errors import ArenaFull, CoordinatorLoss, PoolClosed, error_from_wire
from poolrt.graph.cut_outputs import cut_outputs
from poolrt.workers.ipc.channel import Message
from poolrt.workers.ipc.protocol import Kind

from .memory_wait import MemoryWait
from .ring_runs import RingLost
from .run_inputs import Outputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from poolrt.connection.futures import PoolFuture
    from poolrt.model import Model

    from .loaded_model import LoadedModel
    from .placed_runs import PlacedRun
    from .ring_entry import RingEntry


class ModelRun:
    """One run: its input slots until it has ended, and its outputs until the caller has them."""

    __slots__ = (
        "_abandoned",
        "_arrays",
        "_borrowed",
        "_ended",
        "_future",
        "_loaded",
        "_model",
        "_repeated",
        "_request",
        "_unclaimed",
        "entry",
    )

    def __init__(self, model: Model, arrays: list[NDArray[Any]]) -> None:
        self._model: Model | None = model
        self._loaded = model._loaded
        #: Inputs that were copied are replaced by their copies: the caller may change them before the run is repeated.
        self._arrays = arrays
        self._borrowed: list[tuple[int, int]] = []
        self._future: PoolFuture[dict[str, NDArray[Any]]] | None = None
        self._request: Request | None = None
        #: The offsets of the outputs until they are claimed: `results` or `abandon` pops them, once.
        self._unclaimed: deque[list[int]] = deque()
        #: Its entry on a ring, until it has ended or is sent as a message.
        self.entry: RingEntry | None = None
        self._ended = False
        self._abandoned = False
        #: How often the run of a future was begun again.
        self._repeated = 0

    @classmethod
    def resume(cls, model: Model, loaded: LoadedModel, run: PlacedRun) -> ModelRun:
        """Return what finishes a run in a prepared place that has ended without outputs: it has failed, or is done again."""
        found = cls(model, run.inputs())
        found._loaded = loaded
        found.entry = run.convert(loaded, found._arrays)
        if found.entry is None:
            raise model._closed()
        return found

    def note_loaded(self, loaded: LoadedModel) -> None:
        """Note the connection on which it was begun in another form."""
        self._loaded = loaded

    @property
    def client(self) -> Client:
        """The client of the connection on which it was begun."""
        return self._loaded.client

    def perform(self, link: Link, deadline: float | None = None) -> dict[str, NDArray[Any]]:
        """Run on a connection and return the outputs. Raises TimeoutError after the deadline."""
        self.start(link, MemoryWait(deadline, performed=True))
        try:
            return self.wait(deadline)
        except CoordinatorLoss:
            raise
        except BaseException as error:
            self.abandon(timed_out=isinstance(error, TimeoutError))  # interrupted: its outputs have no use
            raise

    def start(self, link: Link, wait: MemoryWait, *, sends: bool = True) -> None:
        """Begin on a connection, on a ring or by a message. Raises ArenaFull, and TimeoutError as ``wait`` says.

        If nothing in flight has the memory that it lacks, it is sent, and the coordinator says why; or not if not ``sends``.
        """
        if self.start_on_ring(link, wait, sends=sends) is None:
            self._request = None
            self._request = self.begin(link, wait=wait)

    def start_on_ring(self, link: Link, wait: MemoryWait, *, sends: bool = True) -> RingEntry | None:
        """Begin on a connection, on a ring; None if it has to be sent as a message. Raises what `start` does."""
        loaded = self._owner()._loaded_on(link)
        self._loaded = loaded
        if not loaded.client.rings.all:
            self.entry = None
            return None
        from .ring_run import begin_on_ring  # not before there is a ring

        try:
            self.entry = begin_on_ring(loaded, self._arrays, self._owner()._output_sizes, wait)
        except ArenaFull:
            if not sends:
                raise
            self.entry = None  # the coordinator says why there is none
        return self.entry

    def finish(self, deadline: float | None = None) -> dict[str, NDArray[Any]]:
        """Wait for a run that was started and return its outputs; do it again if its server has exited.

        Raises its error, and TimeoutError after the deadline.
        """
        try:
            return self.wait(deadline)
        except CoordinatorLoss:
            if not self.may_repeat():
                raise
            return self._owner()._session.repeat(partial(self.perform, deadline=deadline), deadline)
        except BaseException as error:
            self.abandon(timed_out=isinstance(error, TimeoutError))
            raise

    def wait(self, deadline: float | None) -> dict[str, NDArray[Any]]:
        """Wait until it has ended and return the outputs. Raises its error, and TimeoutError after the deadline."""
        entry = self.entry
        if entry is not None:
            if entry.ring is not None:
                entry.ring.wait(entry, self.client, deadline)
            outputs = self.take_outputs(entry)
            if outputs is not None:
                return outputs
        request = self._request
        if request is None:
            raise PoolClosed("this run was not begun")
        try:
            answer = self.client.next_answer(request, deadline)
        except CoordinatorLoss:
            self._request = None
            raise
        self._request = None  # no cycle keeps the model
        return self.results(answer)

    def take_outputs(
        self, entry: RingEntry, future: PoolFuture[dict[str, NDArray[Any]]] | None = None
    ) -> dict[str, NDArray[Any]] | None:
        """Return the outputs of an entry that has ended; send the run as a message and return None if it was not executed."""
        from .ring_run import outputs_of

        lost_ring = 0
        try:
            outputs = outputs_of(self._loaded, entry)
        except RingLost as loss:
            outputs, lost_ring = None, loss.ring
        if outputs is not None:
            self.entry = None
            return self._results(outputs, kept=True)
        self._request = None
        self._borrowed = entry.take_inputs()
        if future is not None:
            self._leave_driver(future)
        try:
            request = self.begin(self._loaded.link, future, lost_ring, entry.inputs, is_counted=True)
        finally:
            entry.leave_ring()
        self.entry = None
        if future is None:
            self._request = request
        return None

    def begin(
        self,
        link: Link,
        future: PoolFuture[dict[str, NDArray[Any]]] | None = None,
        lost_ring: int = 0,
        places: Sequence[int] = (),
        *,
        is_counted: bool = False,
        is_accepted: bool = False,
        wait: MemoryWait | None = None,
    ) -> Request:
        """Send the run, which may have been begun on a lost ring. Inputs are at ``places``, or copied if needed.

        A future that ``is_accepted`` was begun before: the end of a pool waits for it.

        If memory for copies is short, runs in flight end first. Raises ArenaFull, and TimeoutError as ``wait`` says.
        A run that ``is_counted`` as one on a ring keeps its model loaded; another one is refused if that has been closed.
        """
        loaded = self._owner()._loaded_on(link)
        self._loaded = loaded
        accepted = is_accepted or is_counted
        if is_counted:
            return self._send(loaded, future, lost_ring, places or self._place_inputs(wait), accepted)
        if not loaded.begin_on_ring():
            raise self._owner()._closed()
        try:
            return self._send(loaded, future, lost_ring, places or self._place_inputs(wait), accepted)
        finally:
            loaded.end_on_ring()  # another thread that closes it unloads it after this run was sent

    def _send(
        self,
        loaded: LoadedModel,
        future: PoolFuture[dict[str, NDArray[Any]]] | None,
        lost_ring: int,
        places: Sequence[int],
        is_accepted: bool,
    ) -> Request:
        self._future = future
        loaded.count(1)
        try:
            request = Request(self._settle, self._resolve if future is not None else None)
            if future is not None:
                request.begin = future.note_begun
                open_futures = loaded.client.open_futures
                (open_futures.follow if is_accepted else open_futures.add)(future)
                self._request = request
            fields: list[Any] = [loaded.number, [*places], loaded.client.released()]
            if lost_ring:
                return loaded.client.begin(Kind.RERUN, *fields, lost_ring, request=request)
            return loaded.client.begin(Kind.RUN, *fields, request=request)
        except BaseException:
            if not self._ended:
                loaded.count(-1)
                # After an interruption it is unknown whether the run was sent, so its slots are not used again.
                self._borrowed = []
            if future is not None:
                loaded.client.open_futures.forget(future)
            raise

    def _place_inputs(self, wait: MemoryWait | None) -> list[int]:
        """Copy inputs to shared memory unless they are there; return where they are."""
        loaded = self._loaded
        memory = loaded.memory
        places = [memory.offset_of(a) if a.flags.c_contiguous else None for a in self._arrays]
        copied = [number for number, place in enumerate(places) if place is None]
        sizes = [self._arrays[number].nbytes for number in copied]
        slots = loaded.take_slots(sizes, wait or MemoryWait()) if sizes else []
        # After an interruption before the run is sent they are not used again.
        self._borrowed = list(zip(slots, sizes, strict=True))
        for number, offset in zip(copied, slots, strict=True):
            view = loaded.input_at(number, offset)
            view[...] = self._arrays[number]
            self._arrays[number] = view
            places[number] = offset
        return [place for place in places if place is not None]

    def begin_again(self, future: PoolFuture[dict[str, NDArray[Any]]]) -> None:
        """Begin the run of a future on another connection, by a message. Raises what `Session.repeat` raises."""
        self._repeated += 1
        self.entry = None
        self._leave_driver(future)
        self.client.open_futures.forget(future)
        self._owner()._session.repeat(partial(self.begin, future=future, is_accepted=True))

    def _leave_driver(self, future: PoolFuture[dict[str, NDArray[Any]]]) -> None:
        """Let the thread of a connection resolve a future, which answers to a message."""
        self.client.open_futures.leave_driver(future)
        future.driver = None
        future.withdraw = self.withdraw

    def withdraw(self) -> bool:
        """Withdraw the run of a future; return whether no worker has begun it or will."""
        request = self._request
        return request is not None and self.client.withdraw(request)

    def may_repeat(self) -> bool:
        """Return whether the run may be done again on another connection."""
        return self._owner()._session.may_repeat(self._loaded.link)

    def results(self, answer: Message) -> dict[str, NDArray[Any]]:
        """Return the outputs of a successful run."""
        self._unclaimed.pop()
        return self._results(answer[2])

    def _results(self, offsets: Sequence[int], *, kept: bool = False) -> dict[str, NDArray[Any]]:
        """Return the arrays in the slots of outputs, which are ``kept`` for later runs on rings or released."""
        model = self._owner()
        memory = self._loaded.memory
        self._model = None
        arrays = (
            memory.output(offset, spec.shape, spec.array_dtype, keep=kept)
            for spec, offset in zip(model._results, offsets, strict=True)
        )
        outputs = Outputs(zip((spec.name for spec in model._results), arrays, strict=True))
        if model._cuts:
            cut_outputs(outputs, model._cuts)
        return outputs

    def abandon(self, *, timed_out: bool = False) -> None:
        """Release the outputs as soon as they exist. After a timeout, a worker has little time for the rest of the run."""
        entry, request = self.entry, self._request
        if entry is not None:
            from .ring_run import leave_entry

            leave_entry(self._loaded, entry, timed_out=timed_out)
        self._abandoned = True
        self._discard()
        if timed_out and request is not None:
            self.client.send_nowait([Kind.GIVE_UP, request.number, 0, 0])
        self._request = None  # no cycle keeps the model

    def expire(self, future: PoolFuture[dict[str, NDArray[Any]]], limit_s: float) -> None:
        """End the run of a future whose time is over with a TimeoutError. Its answer changes nothing then."""
        from concurrent.futures import InvalidStateError

        error = None if self._model is None else self._model._timed_out(limit_s)
        self._future = None  # first: the coordinator may answer at once that the caller has gone
        self.abandon(timed_out=True)
        if error is not None:
            try:
                future.note_begun()
                future.set_exception(error)
            except InvalidStateError:
                pass  # it has ended or was cancelled meanwhile

    def _settle(self, answer: Message) -> None:
        """Free the inputs of a run that has ended. The thread that reads the answer calls this once."""
        self._ended = True
        self._loaded.count(-1)
        if answer[0] == Kind.DONE:
            self._unclaimed.append(answer[2])
        for offset, nbytes in self._borrowed:
            self._loaded.memory.give(offset, nbytes)
        self._borrowed = []
        self._arrays = []
        if self._abandoned:
            self._discard()

    def _resolve(self, answer: Message) -> None:
        future = self._future
        if future is None:
            return
        self._future = self._request = None  # no cycle keeps the outputs
        if answer[0] == Kind.WITHDRAWN:
            future.note_cancelled()
            return
        if answer[0] != Kind.FAILED:
            future.note_begun()
            try:
                future.set_result(self.results(answer))
            except Exception:
                if not self._abandoned:
                    raise  # else its time is over, and the future is done
            return
        error: Exception = error_from_wire(answer[2])
        session = self._owner()._session
        if isinstance(error, CoordinatorLoss) and self._repeated < session.settings.retries and self.may_repeat():
            self._repeated += 1
            try:
                # In the thread of the connection that was lost, which resolves futures that need the same.
                session.repeat(partial(self.begin, future=future))
                return
            except Exception as failure:  # noqa: BLE001 - the future gets any error
                error = failure
        future.note_begun()
        future.set_exception(error)

    def _discard(self) -> None:
        try:
            offsets = self._unclaimed.pop()
        except IndexError:
            return
        for offset in offsets:
            self._loaded.memory.release(offset)

    def _owner(self) -> Model:
        if self._model is None:
            raise PoolClosed("this run has ended")
        return self._model

"""A client that writes damaged entries to its rings: `python -m tests.drills.ring_attacker SOCKET SEED COUNT SECRET`.

It connects, runs a model and calls functions until it has rings, and damages one thing at a time: entries of runs, also at
places that a valid run has used, entries of calls, their arguments and tables of slots, any word of a ring in either direction,
slots for results, and messages about all that. It does so while entries are held for an urgent call, while calls and runs in
flight are taken back, and while those of several priorities wait. When it is disconnected, it connects again. It prints one
JSON object: what was damaged, how connections ended, and what was wrong.

Left out: an entry that is valid and names a slot of another client. All clients can write to the arena themselves (decision 29).
"""

from __future__ import annotations

import json
import marshal
import pickle
import random
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

import msgpack

from poolrt.errors import CoordinatorLost
from poolrt.workers.ipc.call_ring import RAISED, RETURNED, RETURNED_PLAIN, TAKEN_BACK, SubmittingCallRing
from poolrt.workers.ipc.outlined_payload import MalformedPayload, Place, Slot, pack_outlined, parse_outlined
from poolrt.workers.ipc.protocol import PLACED, PLAIN, PRIORITIES, SCALARS, Kind
from poolrt.workers.ipc.ring import EXECUTED, HEADS, SLOTS_LIMIT, SubmittingRing
from poolrt.workers.ipc.ring import RETURNED as RETURNED_RUN
from poolrt.workers.processes.placed_arrays import parse_placed
from poolrt.workers.processes.plain_pickles import UNPACKING_ERRORS, unpack_scalar

from ..mutations import mutated, replace_a_part
from .ring_connection import ANSWER_S, ECHO, GROW, LONG_BYTES, NBYTES, Connection, Ended

#: Seconds for which a damaged word may have an effect.
_EFFECT_S: Final = 0.02
#: Damages on one connection at most.
_LASTS: Final = 24
_ENTRY_BYTES: Final = 8 * (6 + SLOTS_LIMIT)
#: Words of a ring of calls that are counts, and those beside entries and of results; words of a ring of runs that are counts, and
#: those behind its entries.
_CALL_WORDS: Final = (range(8, 24), range(64, 128), range(1152, 2176))
_RUN_WORDS: Final = (range(8, 40), range(2112, 2240))
#: Words of a ring of calls that say whether an entry is taken back or held, what is added for the latter, and words of a ring of
#: runs that say which are withdrawn.
_MARKS: Final = range(64, 128)
_HELD: Final = 1 << 63
_WITHDRAWN: Final = range(2176, 2240)


class Attacker:
    """Damages rings of connections, one after the other."""

    def __init__(self, path: str, seed: int, secret: bytes) -> None:
        self._path = path
        self._chance = random.Random(seed)
        self._secret = secret
        self.made = Counter[str]()
        self.ended = Counter[str]()
        self.wrong: list[str] = []

    def work(self, count: int) -> None:
        """Damage so many things."""
        acts = {
            self._scalars: 5, self._placed: 4, self._outlined: 4, self._room: 3, self._call_entry: 2, self._call_words: 2,
            self._run_entry: 2, self._placed_entry: 2, self._run_words: 2, self._message: 2,
            self._held: 5, self._flight: 3, self._order: 2, self._flood: 1,
        }  # fmt: skip
        while self.made.total() < count and not self.wrong:
            try:
                mine = Connection(self._path)
            except (Ended, CoordinatorLost) as error:
                self.wrong.append(f"a client that has done no harm yet was refused: {error}")
                return
            try:
                for _ in range(_LASTS):
                    (act,) = self._chance.choices(list(acts), list(acts.values()))
                    self.made[act.__name__.strip("_")] += 1
                    act(mine)
                mine.ping()
                self.ended["by itself"] += 1
            except Ended:
                self.ended["by the coordinator"] += 1
            except TimeoutError as error:
                self.wrong.append(str(error))
            finally:
                self._look(mine)
                mine.close()

    def _look(self, mine: Connection) -> None:
        """Look for the other client's bytes in all that has come, and in the own slots."""
        own = ((mine.inputs, NBYTES), (mine.outputs, NBYTES), (mine.long, LONG_BYTES))
        found = [bytes(mine.arena.buffer(offset, nbytes)) for offsets, nbytes in own for offset in offsets]
        if any(self._secret in each for each in (*found, bytes(mine.seen))):
            self.wrong.append("bytes of another client were read")

    # Calls

    def _call(self, mine: Connection, function: int, payload: bytes, request: int = 0) -> None:
        """Submit a call and read its result. Raises Ended."""
        ring, bell = self._chance.choice([*mine.calls.values()])
        sequence = ring.append(function, request or mine.request(), payload)
        if not sequence:
            return  # a damaged word has filled the ring
        self._submit_call(mine, ring, bell, sequence)

    def _submit_call(self, mine: Connection, ring: SubmittingCallRing, bell: socket.socket, sequence: int) -> None:
        ring.publish(sequence)
        ring.sleep_until(sequence)
        _ring(bell)
        is_odd = ring.number in mine.odd
        if not mine.await_effect(lambda: ring.done >= sequence, bell, _EFFECT_S if is_odd else ANSWER_S):
            if not is_odd:
                self.wrong.append(f"call {sequence} has not ended within {ANSWER_S:g} s")
            return
        status, value = ring.outcome(sequence)
        ring.consume(sequence)
        mine.seen += value
        if status == RETURNED_PLAIN:
            with suppress(*UNPACKING_ERRORS):
                mine.seen += repr(unpack_scalar(value)).encode()
        elif status == RAISED:
            mine.seen += value[4:]

    def _scalars(self, mine: Connection) -> None:
        """Call with damaged arguments that are scalars."""
        values = (self._chance.randrange(1 << 40), "text", b"bytes", 1.5, None, True, 1 << 80)
        payload = marshal.dumps(tuple(self._chance.sample(values, self._chance.randint(1, 5))), 2)
        self._call(mine, ECHO | PLAIN | SCALARS, mutated(payload, self._chance))

    def _placed(self, mine: Connection) -> None:
        """Call with damaged arguments that name arrays in place."""
        flat: list[Any] = ["Cs", mine.long[0], "|u1", 2, 2, LONG_BYTES // 2, 7]
        if self._chance.random() < 0.5:
            place = self._chance.randrange(len(flat))
            old = flat[place]
            if type(old) is int and self._chance.random() < 0.7:
                flat[place] = self._chance.choice((old + 1, old - 1, old * 2, -old, old << 30, 0, 1 << 62))
            else:
                replace_a_part(flat, self._chance)
            try:
                payload = marshal.dumps(tuple(flat), 2)
            except ValueError:
                return
        else:
            payload = mutated(marshal.dumps(tuple(flat), 2), self._chance)
        if len(payload) <= 16384 and self._is_own(mine, self._places_of(payload)):
            self._call(mine, ECHO | PLAIN | PLACED, payload)

    @staticmethod
    def _places_of(payload: bytes) -> list[Place]:
        """Return the places that arguments name, none if a worker must refuse them."""
        with suppress(*UNPACKING_ERRORS, IndexError, KeyError, AttributeError, OverflowError):
            return list(parse_placed(unpack_scalar(payload)).places)
        return []

    def _outlined(self, mine: Connection) -> None:
        """Call with a damaged table of slots."""
        buffers: list[Any] = []
        data = pickle.dumps(((pickle.PickleBuffer(bytearray(LONG_BYTES)),), {}), 5, buffer_callback=buffers.append)
        table = pack_outlined([Slot(mine.long[1], LONG_BYTES)], [Place(0, 0, LONG_BYTES)], b"")
        payload = mutated(table, self._chance)[: 2 * len(table)] + data
        if not payload.startswith(b"\0"):
            payload = b"\0" + payload  # another first byte makes it a pickle, which is a program
        places: list[Place] = []
        with suppress(MalformedPayload):
            parsed = parse_outlined(payload, mine.arena_bytes)
            places = [Place(0, slot.offset, slot.nbytes) for slot in parsed.slots]
            places += [place for place in parsed.places if place.source == -1]
            if parsed.data is None or bytes(parsed.data) != data:
                return  # the pickle is another program
        if self._is_own(mine, places):
            self._call(mine, ECHO | PLAIN, payload)

    @staticmethod
    def _is_own(mine: Connection, places: Iterable[Place]) -> bool:
        """Return whether places are all in slots of this client, or outside of the arena."""
        own = [(offset, offset + LONG_BYTES) for offset in mine.long]
        for place in places:
            start: Any = place.start  # any scalar of damaged arguments; a flag is a number, too
            nbytes = place.nbytes
            if not isinstance(start, int) or start < 0 or start + nbytes > mine.arena_bytes:
                continue
            if not any(begin <= start and start + nbytes <= end for begin, end in own):
                return False
        return True

    def _room(self, mine: Connection) -> None:
        """Call for a long result under the number of any request, and release damaged slots."""
        request = self._chance.choice((0, mine.request(), 1, 2, 11, 1 << 40, (1 << 63) - 1))
        self._call(mine, GROW | PLAIN | SCALARS, marshal.dumps((self._chance.randrange(50_000),), 2), request)
        mine.take_all()
        offsets, mine.rooms = mine.rooms, []
        if offsets and self._chance.random() < 0.3:
            replace_a_part(offsets, self._chance)
        if offsets:
            mine.send([Kind.RELEASE, offsets])

    def _call_entry(self, mine: Connection) -> None:
        """Damage an entry of a call."""
        ring, bell = self._chance.choice([*mine.calls.values()])
        payload = marshal.dumps((1, "a" * self._chance.choice((1, 200))), 2)
        sequence = ring.append(ECHO | PLAIN | SCALARS, mine.request(), payload)
        if sequence:
            self._damage_call(ring, sequence)
            mine.odd.add(ring.number)
            self._submit_call(mine, ring, bell, sequence)

    def _damage_call(self, ring: SubmittingCallRing, sequence: int) -> None:
        place = 8 * (128 + (sequence - 1) % 64 * 16)
        # The number of the function and the flags beside it decide whether the arguments are a pickle, which is a program.
        entry = bytearray(ring._bytes[place : place + 128])
        head = mutated(bytes(entry[:40]), self._chance)[:40]
        entry[: len(head)] = head
        flags = int.from_bytes(entry[8:16], "little")
        if not flags & SCALARS:
            entry[8:16] = (flags | PLAIN | SCALARS).to_bytes(8, "little")
        ring._bytes[place : place + 128] = entry

    def _call_words(self, mine: Connection) -> None:
        """Damage any words of a ring of calls, those of the worker too, then call."""
        ring, bell = self._chance.choice([*mine.calls.values()])
        self._damage_words(ring._words, self._chance.choice(_CALL_WORDS))
        mine.odd.add(ring.number)
        _ring(bell)
        sequence = ring.append(ECHO | PLAIN | SCALARS, mine.request(), marshal.dumps((5,), 2))
        if sequence:
            self._submit_call(mine, ring, bell, sequence)

    def _held(self, mine: Connection) -> None:
        """Hold calls in flight, put an urgent one before them and take some back, as clients do, or with damages amid that."""
        ring, bell = self._chance.choice([*mine.calls.values()])
        first = ring.submitted + 1
        for _ in range(self._chance.randint(1, 6)):
            ring.publish(self._append_text(mine, ring) or ring.submitted)
        last = ring.submitted
        if last < first:
            return  # a damaged word has filled the ring
        is_damaged = self._chance.random() < 0.7
        if is_damaged:
            mine.odd.add(ring.number)
        taken = ring.hold(first, last)
        if self._chance.random() < 0.7:
            _ring(bell)  # the worker comes to an entry that is held
        if is_damaged and self._chance.random() < 0.3:
            self._damage_held(ring, first, last)
        free = [sequence for sequence in range(first, last + 1) if sequence > taken]
        if free and self._chance.random() < 0.7 and last < ring.consumed + 64:
            former = self._chance.sample(free, len(free)) if is_damaged and self._chance.random() < 0.3 else free
            at = self._chance.randint(0, len(former))
            payload = self._text()
            place = ring.reserve(payload)
            if place >= 0:
                ring.rearrange(free[0], former, at, ECHO | PLAIN | SCALARS, mine.request(), place, payload)
        back = set(self._chance.sample(free, self._chance.randint(0, len(free))))
        for sequence in back:
            ring.take_back(range(sequence, sequence + 1))
        if is_damaged:
            for _ in range(self._chance.randint(1, 3)):
                self._damage_held(ring, first, last)
            if self._chance.random() < 0.3:
                mine.ping()  # entries are held while the coordinator looks
            if self._chance.random() < 0.2:
                return  # they are held for ever
        ring.release(range(first, last + 1), back)
        newest = ring.submitted
        ring.sleep_until(newest)
        _ring(bell)
        self._take_ends(mine, ring, bell, range(first, newest + 1), back)

    def _take_ends(
        self, mine: Connection, ring: SubmittingCallRing, bell: socket.socket, sequences: range, back: set[int]
    ) -> None:
        """Wait for calls in flight, and look at how they have ended. Raises Ended."""
        last = sequences.stop - 1
        is_odd = ring.number in mine.odd
        if mine.await_effect(lambda: ring.done >= last, bell, _EFFECT_S if is_odd else ANSWER_S):
            if not is_odd:
                ends = {sequence: ring.outcome(sequence)[0] for sequence in sequences}
                usual = {RETURNED, RETURNED_PLAIN}
                if any(end not in usual and (end != TAKEN_BACK or each not in back) for each, end in ends.items()):
                    self.wrong.append(f"calls ended with statuses {ends}, of which {back} were taken back")
                ring.consume(last)
        elif not is_odd:
            self.wrong.append(f"call {last} that was held has not ended within {ANSWER_S:g} s")

    def _append_text(self, mine: Connection, ring: SubmittingCallRing) -> int:
        return ring.append(ECHO | PLAIN | SCALARS, mine.request(), self._text())

    def _text(self) -> bytes:
        return marshal.dumps((1, "a" * self._chance.choice((1, 200))), 2)

    def _damage_held(self, ring: SubmittingCallRing, first: int, last: int) -> None:
        """Damage marks of entries that are held, the entries themselves, or counts beside them."""
        sequence = self._chance.randint(first, last + 1)
        kind = self._chance.random()
        if kind < 0.5:
            near = sequence, sequence - 64, sequence + 64, sequence - 1, sequence + 1
            marks = (*(each % _HELD for each in near), *(each % _HELD | _HELD for each in near))
            wild = 0, 1, _HELD, _HELD - 1, (1 << 64) - 1, self._chance.randrange(1 << 64)
            ring._words[_MARKS[(sequence - 1) % 64]] = self._chance.choice((*marks, *wild))
        elif kind < 0.7:
            self._damage_call(ring, sequence)
        else:
            self._damage_words(ring._words, self._chance.choice(_CALL_WORDS))

    # Runs

    def _run(self, mine: Connection, ring: SubmittingRing, bell: socket.socket, seconds: float) -> None:
        sequence = ring.submitted
        ring.sleep_until(sequence)
        _ring(bell)
        mine.await_effect(lambda: ring.done >= sequence, bell, seconds)

    def _run_entry(self, mine: Connection, *, after_a_run: bool = False) -> None:
        """Damage an entry of a run."""
        ring, bell = self._chance.choice([*mine.runs.values()])
        while True:
            if after_a_run and ring.number not in mine.odd:
                for _ in range(2):
                    ring.append(mine.model, [mine.inputs[1]], [mine.outputs[1]])
                    self._run(mine, ring, bell, ANSWER_S)
            sequence = ring.submitted + 1
            if not 0 < sequence < 1 << 63:
                return
            words = [
                sequence,
                ring.number,
                mine.model,
                1,
                1,
                0,
                mine.inputs[1],
                mine.outputs[1],
                *[0] * (SLOTS_LIMIT - 2),
            ]
            whole = b"".join(word.to_bytes(8, "little") for word in words)
            head = mutated(whole[:64], self._chance)[:_ENTRY_BYTES]
            entry = head + whole[len(head) :]
            if self._is_harmless(mine, ring, sequence, entry):
                break
        place = 8 * HEADS[(sequence - 1) % 64]
        ring._bytes[place : place + _ENTRY_BYTES] = entry
        ring._words[8] = sequence
        mine.odd.add(ring.number)
        self._run(mine, ring, bell, _EFFECT_S)

    def _placed_entry(self, mine: Connection) -> None:
        """Damage an entry where a valid one was served, as a prepared place has it."""
        self._run_entry(mine, after_a_run=True)

    @staticmethod
    def _is_harmless(mine: Connection, ring: SubmittingRing, sequence: int, entry: bytes) -> bool:
        """Return whether an entry is not valid, or names slots of its client only."""
        words = memoryview(entry).cast("Q")
        if [*words[:5]] != [sequence, ring.number, mine.model, 1, 1]:
            return True
        slots = words[6], words[7]
        if any(offset % 128 or offset + NBYTES > mine.arena_bytes for offset in slots):
            return True
        return set(slots) <= {*mine.inputs, *mine.outputs}

    def _run_words(self, mine: Connection) -> None:
        """Damage any words of a ring of runs, those of the worker too."""
        ring, bell = self._chance.choice([*mine.runs.values()])
        self._damage_words(ring._words, self._chance.choice(_RUN_WORDS))
        mine.odd.add(ring.number)
        self._run(mine, ring, bell, _EFFECT_S)

    def _flight(self, mine: Connection) -> None:
        """Withdraw runs in flight, or let their time pass, as clients do, or with damages amid that."""
        ring, bell = self._chance.choice([*mine.runs.values()])
        first = ring.submitted + 1
        count = self._chance.randint(2, 8)
        if not 0 < first < 1 << 62:
            return
        is_damaged = self._chance.random() < 0.7
        if is_damaged:
            mine.odd.add(ring.number)
        for _ in range(count):
            ring.append(mine.model, [mine.inputs[1]], [mine.outputs[1]])
        if self._chance.random() < 0.5:
            _ring(bell)
        last = ring.submitted
        for sequence in self._chance.sample(range(first, last + 1), self._chance.randint(0, count)):
            ring.withdraw(sequence)
        if is_damaged:
            self._damage_words(ring._words, self._chance.choice((_WITHDRAWN, *_RUN_WORDS)))
        if self._chance.random() < 0.5:
            given_up = self._chance.choice((first, last, last + 1, last + 64, 0, (1 << 63) - 1))
            mine.send([Kind.GIVE_UP, 0, ring.number, given_up])
        if ring.number in mine.odd:
            self._run(mine, ring, bell, _EFFECT_S)
            return
        self._run(mine, ring, bell, ANSWER_S)
        ends = {sequence: ring.status(sequence) for sequence in range(first, last + 1)}
        if ring.done < last or not {*ends.values()} <= {EXECUTED, RETURNED_RUN}:
            self.wrong.append(f"{ring.done} of {last} runs have ended, the last ones with statuses {ends}")

    def _flood(self, mine: Connection) -> None:
        """Publish entries that are taken back or withdrawn, one after the other."""
        run = mine.runs[self._chance.choice([*mine.runs])][0]
        call = mine.calls[self._chance.choice([*mine.calls])][0]
        mine.odd |= {run.number, call.number}
        until = time.monotonic() + _EFFECT_S
        while time.monotonic() < until:
            done = call.done % (1 << 40)
            call.take_back(range(done + 1, done + 65))
            call.publish(done + 64)
            run.words[8] = (run.done + 1) % (1 << 63)
        mine.ping()

    def _damage_words(self, words: memoryview, places: range) -> None:
        for _ in range(self._chance.choice((1, 1, 2, 4))):
            place = self._chance.choice(places)
            old = words[place]
            near = (old + 1) % (1 << 64), (old - 1) % (1 << 64), old ^ 1 << self._chance.randrange(64)
            words[place] = self._chance.choice(
                (*near, 0, 1, 63, 64, 65, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
            )

    # Messages

    def _message(self, mine: Connection) -> None:
        """Damage a message about runs, calls, rings or slots."""
        number = mine.request()
        ring = self._chance.choice([*mine.runs])
        messages: tuple[list[Any], ...] = (
            [Kind.RUN, number, mine.model, [mine.inputs[0]], []],
            [Kind.RERUN, number, mine.model, [mine.inputs[0]], [], ring],
            [Kind.RELEASE, [mine.inputs[0]]],
            [Kind.GIVE_UP, 0, ring, 5],
            [Kind.HELD_UP, ring],
            [Kind.WITHDRAW, number, number - 1],
            [Kind.CALLS, ECHO],
            [Kind.DISCARD, GROW],
            [Kind.UNLOAD, mine.model],
            [Kind.EXPLAIN, number, mine.model],
            [Kind.CANCEL, number],
        )
        message = [*self._chance.choice(messages)]
        if self._chance.random() < 0.6:
            fields = message[1:]
            replace_a_part(fields, self._chance)
            mine.send([message[0], *fields])
        else:
            mine.send_bytes(mutated(msgpack.packb(message), self._chance))
        mine.ping()

    def _order(self, mine: Connection) -> None:
        """Send calls and runs of several priorities, and take some back; damage one of the messages."""
        numbers = [mine.request() for _ in range(self._chance.randint(2, 8))]
        messages: list[list[Any]] = []
        for number in numbers:
            priority = self._chance.choice(PRIORITIES)
            if self._chance.random() < 0.6:
                messages.append([Kind.CALL, number, ECHO, priority, pickle.dumps(((number,), {}), 5)])
            else:
                messages.append([Kind.RUN, number, mine.urgent_model(priority), [mine.inputs[0]], []])
        for number in self._chance.sample(numbers, self._chance.randint(0, len(numbers))):
            kind = self._chance.choice((Kind.WITHDRAW, Kind.GIVE_UP, Kind.CANCEL))
            fields = {Kind.WITHDRAW: [mine.request(), number], Kind.GIVE_UP: [number, 0, 0], Kind.CANCEL: [number]}
            messages.append([kind, *fields[kind]])
        if self._chance.random() < 0.7:
            damaged = self._chance.choice(messages)
            # The last field of a call is a pickle, which is a program.
            place = self._chance.randrange(1, len(damaged) - (damaged[0] == Kind.CALL))
            field = [damaged[place]]
            replace_a_part(field, self._chance)
            damaged[place] = field[0]
        for message in messages:
            mine.send(message)
        mine.ping()


def _ring(bell: socket.socket) -> None:
    with suppress(OSError):
        bell.send(b"\0", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


def main() -> None:
    """Do what the command line says."""
    attacker = Attacker(sys.argv[1], int(sys.argv[2]), bytes.fromhex(sys.argv[4]))
    attacker.work(int(sys.argv[3]))
    print(json.dumps({"made": attacker.made, "ended": attacker.ended, "wrong": attacker.wrong}))


if __name__ == "__main__":
    main()

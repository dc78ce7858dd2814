"""Binaries of programs, one entry for each device: found in the store, else built by one process for all."""

from __future__ import annotations

import atexit
import os
import re
import threading
import time
from collections import Counter
from functools import lru_cache, partial
from typing import Any, Final

import pyopencl as cl

from poolrt.cachestore import CacheStore, CreationFailed, Key, StoreError
from poolrt.cachestore.deferred_dataclass import dataclass, replace
from poolrt.workers.engines.opencl import device_target

from . import late_compiles
from .absent_includes import refuse_those_of_driver
from .errors import Unusual
from .includes import Sources, read_sources
from .options import BuildOptions, parse_options
from .payload import ProgramBinary, pack_program, parse_program
from .private import error_of, program_from_source

_SCHEMA: Final = 1
#: Seconds that a process that exits spends at most on completing binaries, and programs that it remembers for this.
_EXIT_S: Final = 5.0
_REMEMBERED: Final = 256
#: Type of an entry's error -> the characters of a message that are kept, below what the store carries.
_ERROR: Final = "OpenClBuildError"
_LONGEST: Final = 48 << 10
_KERNELS: Final = re.compile(r"\b(?:__)?kernel\b[^;{}]{0,200}?\bvoid\s+(\w+)\s*\(")
_KINDS: Final = ("RuntimeError", "LogicError", "MemoryError")


class OpenClBuildError(Exception):
    """The compiler refuses a program. The message has the type, code and routine of pyopencl's error, then its text."""

    def __init__(self, error: cl.Error) -> None:
        record: Any = error
        head, _, rest = str(error).partition(" - ")
        # pyopencl's error begins with this head again.
        text = rest if head.startswith(f"{record.routine} failed: ") else str(error)
        if len(text) > _LONGEST:
            text = f"{text[: _LONGEST // 2]}\n... {len(text) - _LONGEST} characters ...\n{text[-_LONGEST // 2 :]}"
        super().__init__(f"{type(error).__name__} {record.code} {record.routine}\n{text}")


@dataclass(frozen=True, slots=True)
class Request:
    """One program to build: its text, the options as a driver gets them, and the context of its devices."""

    context: cl.Context
    source: str | bytes
    options: bytes

    def text(self) -> bytes:
        """Return the source as bytes."""
        return self.source.encode() if isinstance(self.source, str) else self.source


class Binaries:
    """Gets binaries from one store, and completes those that are launched here with the code of their launches.

    Any number of threads may use it. In a forked child it completes nothing: PoCL does not work there.
    """

    def __init__(self, store: CacheStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._process = os.getpid()
        #: Digest of a key -> what was realized for it, with its device.
        self._realized: dict[str, tuple[Key, Request, cl.Device, ProgramBinary]] = {}

    @property
    def store(self) -> CacheStore:
        """The store."""
        return self._store

    def count(self, event: str) -> None:
        """Count one more of ``event``."""
        with self._lock:
            self._counts[event] += 1

    def counts(self) -> dict[str, int]:
        """Return the counts of this process."""
        with self._lock:
            return dict(self._counts)

    def fetch(self, request: Request, device: cl.Device) -> tuple[ProgramBinary, str]:
        """Return the binary of a program for one device, built unless it exists, and its source as `CacheStore` names it.

        Raises Unusual, CreationFailed with an `OpenClBuildError`, and other errors of the store.
        """
        for _ in range(3):
            key = program_key(request, device)
            try:
                found, source = self._fetch(key, request, device)
            except CreationFailed as error:
                if error.type == Unusual.__name__:
                    raise Unusual(error.message) from None
                if error.type != _Changed.__name__:
                    raise
                continue  # an include was written while the compiler read it
            self.count(source)
            if _is_late(device):
                with self._lock:
                    if len(self._realized) < _REMEMBERED:
                        self._realized[key.digest] = (key, request, device, found)
            return found, source
        raise Unusual("its includes changed during three builds")

    def _fetch(self, key: Key, request: Request, device: cl.Device) -> tuple[ProgramBinary, str]:
        if _is_late(device):
            complete = self._store.get_many([_launched(key)])[0]
            if complete is not None:
                return parse_program(complete.value), complete.source

        def create() -> bytes:
            absent = _sources(request).absent
            if absent:
                refuse_those_of_driver(absent, device)
            try:
                built = _build(request, device, late_compiles.new_suffix() if _is_late(device) else "")
            except OpenClBuildError:
                if absent:  # on another host the driver may find it
                    raise Unusual(f"the include {absent[0]!r} is in no folder of the options") from None
                raise
            if program_key(request, device) != key:
                raise _Changed
            return pack_program(built)

        outcome = self._store.fetch_or_create(key, create, keep_in_memory=False)
        return parse_program(outcome.value), outcome.source

    def publish_launches(self, limit_s: float = 60.0) -> int:
        """Complete the stored binaries with the code of launches that they lack; return how many were completed.

        Spends ``limit_s`` seconds at most, and a build more. Counts what fails as ``unpublished``; raises nothing.
        """
        if os.getpid() != self._process:
            return 0
        until = time.monotonic() + limit_s
        with self._lock:
            realized = list(self._realized.values())
        done = 0
        for key, request, device, had in realized:
            if time.monotonic() >= until:
                break
            launches = late_compiles.compiled_launches(had.binary, late_compiles.cache_folder())
            if set(launches) <= set(had.launches) or len(launches) > late_compiles.MOST_LAUNCHES:
                continue
            try:
                whole = replace(_build(request, device, had.suffix, quiet=True), log=had.log, launches=launches)
                if program_key(request, device) != key:
                    continue
                if late_compiles.folder_name(whole.binary) != late_compiles.folder_name(had.binary):
                    # PoCL has built it elsewhere, as paths of folders differ, and without the launches.
                    self.count("unpublished")
                    continue
                self._store.remove(_launched(key))
                self._store.fetch_or_create(_launched(key), partial(pack_program, whole), keep_in_memory=False)
            except (cl.Error, StoreError, Unusual, OpenClBuildError, OSError, ValueError):
                self.count("unpublished")
                continue
            with self._lock:
                self._realized[key.digest] = (key, request, device, whole)
            self.count("published")
            done += 1
        return done


class _Changed(Exception):
    """A file that a program includes changed while the program was built."""


@lru_cache(maxsize=1)
def default_binaries() -> Binaries:
    """Return the binaries of this process, in the store that the environment names."""
    binaries = Binaries(CacheStore.connect())
    atexit.register(binaries.publish_launches, _EXIT_S)  # before the store closes, which has registered first
    return binaries


def binaries_of(store: CacheStore | None) -> Binaries:
    """Return the binaries in a store, which its owner may close before the process exits; None: the environment's."""
    return default_binaries() if store is None else _binaries_in(store)


@lru_cache(maxsize=16)
def _binaries_in(store: CacheStore) -> Binaries:
    return Binaries(store)


def program_key(request: Request, device: cl.Device) -> Key:
    """Return the key of a program for one device. Raises Unusual if something that a binary depends on is unknown."""
    options, sources = _options(request), _sources(request)
    return Key(
        {
            "kind": "opencl",
            "schema": _SCHEMA,
            "kernels": tuple(_KERNELS.findall(request.text().decode(errors="replace"))[:16]),
            "source": sources.text,
            "includes": sources.includes,
            "places": sources.places,
            "options": options.others,
            "device": dict(device_target(device).device),
        }
    )


def _options(request: Request) -> BuildOptions:
    try:
        return parse_options(request.options.decode())
    except UnicodeError as error:
        raise Unusual(f"source or options are no UTF-8: {error}") from None


def _sources(request: Request) -> Sources:
    try:
        return read_sources(request.text(), _options(request).folders)
    except UnicodeError as error:
        raise Unusual(f"source or options are no UTF-8: {error}") from None


def pyopencl_error(failure: CreationFailed) -> cl.Error | None:
    """Return pyopencl's own error for the failure of a build, with the compiler's log; None for another failure."""
    head, _, text = failure.message.partition("\n")
    words = head.split(" ", 2)
    if failure.type != _ERROR or len(words) != 3 or words[0] not in _KINDS:
        return None
    return error_of(words[0], text, int(words[1]), words[2])


def _launched(key: Key) -> Key:
    """Return the key of the same program with the code of launches."""
    return Key({**key.fields, "launches": "observed"})


def _is_late(device: cl.Device) -> bool:
    return late_compiles.is_late(device.platform.name)


def _build(request: Request, device: cl.Device, suffix: str, quiet: bool = False) -> ProgramBinary:
    """Build a program for one device; pyopencl warns of the compiler's output unless ``quiet``.

    Raises OpenClBuildError, or Unusual if the driver has no binary.
    """
    try:
        # In a context of several devices, PoCL has no binary of a program that was built for one.
        context = request.context if list(request.context.devices) == [device] else cl.Context([device])
        text = request.text()
        program = program_from_source(context, text + suffix.encode())
        # Without includes their folders mean nothing, but PoCL names its own folder by the paths: pyopencl's is always one.
        options = request.options if _sources(request).includes else " ".join(_options(request).others).encode()
        if quiet:
            program._build(options=options, devices=[device])
        else:
            try:
                program.build(options, [device])
            except cl.Error:
                if suffix:
                    # The user's text alone: at its end, an error would have the suffix's line.
                    program_from_source(context, text).build(options, [device])
                raise
        devices: Any = program.get_info(cl.program_info.DEVICES)
        binaries: Any = program.get_info(cl.program_info.BINARIES)
        log: Any = program.get_build_info(device, cl.program_build_info.LOG) or ""
    except cl.Error as error:
        raise OpenClBuildError(error) from None
    binary = binaries[devices.index(device)] if device in devices and len(binaries) == len(devices) else None
    if not binary:
        raise Unusual("the driver has no binary of the program")
    return ProgramBinary(bytes(binary), log.strip("\0 \n"), suffix)

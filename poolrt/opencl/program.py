"""pyopencl's `Program`, whose binaries come from the store."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn, Self

import pyopencl as cl

from poolrt.cachestore import CacheStore, CreationFailed, StoreError
from poolrt.workers.engines.opencl import given_processor

from .binaries import Binaries, Request, binaries_of, pyopencl_error
from .errors import FallbackWarning, Unusual
from .kernels import note_program
from .payload import MalformedProgram, ProgramBinary
from .private import check_names, program_from_binaries


class Program(cl.Program):
    """A `pyopencl.Program` that is built once for all threads, processes and hosts that share a store.

    Takes what pyopencl's takes: ``(context, source)``, ``(context, devices, binaries)`` or another program; the last two,
    SPIR-V, `compile` and linking are pyopencl's own. ``store`` is by default the one that the environment names.
    """

    def __init__(self, arg1: Any, arg2: Any = None, arg3: Any = None, *, store: CacheStore | None = None) -> None:
        super().__init__(arg1, arg2, arg3)
        self._store = store
        #: The options of the last build, as given.
        self._options: str | Sequence[str] | None = None
        #: What `build` got from the store, by device.
        self._fetched: dict[cl.Device, ProgramBinary] = {}

    def build(
        self,
        options: str | Sequence[str] | None = None,
        devices: Sequence[cl.Device] | None = None,
        cache_dir: Any = None,
    ) -> Self:
        """Build the program for ``devices`` (None: all of the context) and return it, as pyopencl's does.

        The binaries come from the store, or this process builds them for all. pyopencl's own cache is not used, so
        ``cache_dir`` has no effect; False builds without any cache. Raises pyopencl's RuntimeError with the compiler's log,
        in the process that builds and in those that wait for it. A program that the cache cannot take is built by pyopencl,
        with a `FallbackWarning`. Raises ValueError if the environment's variables of the store are unusable.
        """
        self._find_or_build(options, devices, cache_dir)
        self._options = options
        if "_source" in vars(self):
            note_program(self)
        return self

    def _find_or_build(
        self, options: str | Sequence[str] | None, devices: Sequence[cl.Device] | None, cache_dir: Any
    ) -> None:
        if (self._prg is not None and not self._fetched) or cache_dir is False:
            if cache_dir is not False and "_source" in vars(self):
                self._warn("the program was used before it was built")
            self._build_alone(options, devices)
            return
        started = time.monotonic()
        self._prg, self._fetched = None, {}
        try:
            cached = self._build_from_store(options, devices)
        except (Unusual, StoreError, MalformedProgram, OSError) as reason:
            self._warn(str(reason))
            self._build_alone(options, devices)
            return
        self._build_duration_info = ("retrieval or build", cached, time.monotonic() - started)

    def _build_alone(self, options: str | Sequence[str] | None, devices: Sequence[cl.Device] | None) -> None:
        """Build with pyopencl, for the processor's right name if PoCL has none."""
        for device in self._context.devices:
            given_processor(device)
        super().build(options, devices, False)  # type: ignore[arg-type]

    def get_build_info(self, *args: Any, **kwargs: Any) -> Any:
        """Return what pyopencl returns; the log of a program from the store is the one of its build."""
        if len(args) == 2 and args[1] == cl.program_build_info.LOG and args[0] in self._fetched:
            return self._fetched[args[0]].log
        return super().get_build_info(*args, **kwargs)  # type: ignore[no-untyped-call]

    def get_info(self, arg: cl.program_info) -> Any:
        """Return what pyopencl returns; a program from the store has its source, which a binary has not."""
        return self.source if self._fetched and arg == cl.program_info.SOURCE else super().get_info(arg)

    @property
    def source(self) -> str:  # type: ignore[override]
        """The program's text."""
        if not self._fetched:
            text: str = super().get_info(cl.program_info.SOURCE)  # type: ignore[assignment]
            return text
        return self._source if isinstance(self._source, str) else self._source.decode(errors="replace")

    def _build_from_store(self, options: str | Sequence[str] | None, devices: Sequence[cl.Device] | None) -> bool:
        """Realize the binaries of all devices. Return whether none was built here."""
        check_names()
        line, _ = self._process_build_options(self._context, options)
        chosen = list(self._context.devices if devices is None else devices)
        if not chosen or len(set(chosen)) < len(chosen) or not set(chosen) <= set(self._context.devices):
            raise Unusual("its devices are not distinct ones of its context")
        if any(_is_part(device) for device in chosen):
            raise Unusual("a device is a part of another")
        if not isinstance(self._source, (str, bytes)):
            raise TypeError(f"expect the program's text as str or bytes, got {self._source!r:.80}")
        request = Request(self._context, self._source, line)
        try:
            found = {device: self._binaries().fetch(request, device) for device in chosen}
        except CreationFailed as failure:
            error = pyopencl_error(failure)
            if error is None:
                raise
            # Adds the options, as pyopencl does.
            return bool(self._build_and_catch_errors(partial(_raise, error), options_bytes=line))
        fetched = {device: binary for device, (binary, _) in found.items()}
        try:
            program = program_from_binaries(self._context, chosen, [fetched[device].binary for device in chosen], line)
        except cl.Error as error:
            raise Unusual(f"the driver refuses a binary: {error}") from error
        self._prg, self._fetched = program, fetched
        logs = [
            f"Build on {device} succeeded, but said:\n\n{fetched[device].log}"
            for device in chosen
            if fetched[device].log
        ]
        cached = all(source != "created" for _, source in found.values())
        if logs and cached:
            cl.compiler_output("The build had warnings:\n" + "\n".join(logs))
        return cached

    def _binaries(self) -> Binaries:
        return binaries_of(self._store)

    def _warn(self, reason: str) -> None:
        self._binaries().count("fallbacks")
        warnings.warn(f"pyopencl alone builds this program: {reason}", FallbackWarning, stacklevel=4)


def _is_part(device: cl.Device) -> bool:
    """Return whether a device is a sub-device; drivers of OpenCL 1.1 have none and refuse the question."""
    try:
        return device.get_info(cl.device_info.PARENT_DEVICE) is not None
    except cl.Error:
        return False


def _raise(error: cl.Error) -> NoReturn:
    raise error

"""The outcomes of functions: values and exceptions from pickles of a worker, and the errors of what cannot be loaded."""

from __future__ import annotations

import pickle
import threading
import traceback
from collections.abc import Callable, Iterable
from typing import Final

from poolrt import errors
from poolrt.errors import CoordinatorLoss, FunctionFailed, PoolError, RemoteTraceback
from poolrt.workers.ipc.bounded_decoding import Payload

#: What the coordinator, which does not know it, calls a function.
_FUNCTION: Final = "function"


def load_value(load: Callable[[], object]) -> tuple[object, BaseException | None]:
    """Return the value that ``load`` loads, or the error of loading it. Raises an interrupt of the main thread."""
    try:
        return load(), None
    except BaseException as error:  # noqa: BLE001 - loading runs the user's code; the future gets its error
        return None, error_of_loading(error)


def error_of_loading(error: BaseException, *, may_be_interrupt: bool = True) -> PoolError:
    """Return the error of a result whose loading has raised ``error``. Raises what may be an interrupt of the main thread."""
    if may_be_interrupt:
        _raise_interrupt(error)
    text = f"the result of a function cannot be loaded: {type(error).__name__}: {error}"
    failed: PoolError = errors.call_not_loaded(text, traceback.format_exc())
    return failed


def load_exception(log: str, data: bytes | Payload) -> BaseException:
    """Return the exception of a function, caused by its traceback. Raises an interrupt of the main thread."""
    try:
        value = _load(data)
    except BaseException as error:  # noqa: BLE001 - as above
        _raise_interrupt(error)
        value = None
    if isinstance(value, BaseException):
        value.__cause__ = RemoteTraceback(f'\n"""\n{log}"""')
        return value
    return FunctionFailed(f"a function failed in a worker process:\n{log}", log)


def not_called_twice(error: CoordinatorLoss) -> PoolError:
    """Return the error of a function whose coordinator was lost."""
    return errors.coordinator_lost(f"{error}; a function is not called twice: submit it again if that does no harm")


def name_loss(error: BaseException, name: str) -> BaseException:
    """Return the error of a lost worker with the name of the function that it called, and any other error as it is."""
    if not isinstance(error, errors.WorkerLoss) or error.what != _FUNCTION:
        return error
    text = str(error).replace(f"{_FUNCTION}:", f"{_FUNCTION} {name}:", 1)
    named = type(error)(text, name, error.steps, error.attempts)
    named.__cause__ = error.__cause__
    return named


def load_pickle(data: bytes | memoryview, buffers: Iterable[object] = ()) -> object:
    """Return the value of a worker's pickle and the buffers beside it; None without a pickle. Raises what loading raises."""
    return pickle.loads(data, buffers=buffers) if data else None


def _load(data: bytes | Payload) -> object:
    return load_pickle(data if isinstance(data, bytes) else b"".join(data.pieces))


def _raise_interrupt(error: BaseException) -> None:
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        raise error

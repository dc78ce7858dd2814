"""A property that is computed when it is first read, and kept in its object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class kept_property(Generic[T]):  # noqa: N801 - as `property` and `functools.cached_property`
    """Compute a property once, as `functools.cached_property` does, without a lock.

    Python 3.11's has one lock for all objects of a class: threads wait for one another, and in a process that is forked while a
    thread computes the property, every thread would wait for ever. Threads that first read it at once may each compute it;
    all of them get the value that was there first.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = ""
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...
    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> Self | T:
        if instance is None:
            return self
        found: T = instance.__dict__.setdefault(self._name, self._compute(instance))
        return found

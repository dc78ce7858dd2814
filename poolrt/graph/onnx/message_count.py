"""Count the messages of a serialised model before protobuf parses it.

A message of two bytes takes 200 bytes of memory once it is parsed, so that a file of 100 MB could take 10 GB. Models have a
few thousand messages; those of most large files are few too, because nearly all bytes are data of tensors.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from .detached import BYTES, UnusualFraming, read_fields
from .detached import MOST_FIELDS as FIELDS_OF_ONE

#: Bytes of a model that is not counted: it cannot have more messages than are allowed.
SMALL_BYTES: Final = 8 << 20
#: Messages of a model, which take 800 MB.
MOST_MESSAGES: Final = 4_000_000
#: Fields of all messages together: a bound on the time, a few seconds.
MOST_FIELDS: Final = 8_000_000
#: Protobuf's own limit.
_MOST_DEPTH: Final = 100


class TooManyMessages(ValueError):
    """A model has more messages or fields than any real one, or they are framed as no program writes them."""


def check_messages(model: memoryview, descriptor: Any) -> None:
    """Raise TooManyMessages for a model (``descriptor`` is that of ModelProto) with more messages than are allowed."""
    if len(model) > SMALL_BYTES:
        try:
            _Count().walk(model, descriptor, 0)
        except (UnusualFraming, IndexError) as error:
            raise TooManyMessages(f"its messages are damaged, or one has more than {FIELDS_OF_ONE} fields") from error


class _Count:
    def __init__(self) -> None:
        self.messages = 0
        self.fields = 0

    def walk(self, message: memoryview, descriptor: Any, depth: int) -> None:
        """Count the messages in a message, and those in them."""
        if depth > _MOST_DEPTH:
            raise TooManyMessages(f"its messages are nested deeper than {_MOST_DEPTH}")
        parts = _parts(descriptor)
        for number, kind, _, value, end in read_fields(message):
            self.fields += 1
            if self.fields > MOST_FIELDS:
                raise TooManyMessages(f"it has more than {MOST_FIELDS} fields")
            part = parts.get(number) if kind == BYTES else None
            if part is not None:
                self.messages += 1
                if self.messages > MOST_MESSAGES:
                    raise TooManyMessages(f"it has more than {MOST_MESSAGES} messages")
                if end > value:
                    self.walk(message[value:end], part, depth + 1)


@lru_cache(maxsize=64)
def _parts(descriptor: Any) -> dict[int, Any]:
    """Return the descriptors of a message's fields that are messages, by number."""
    return {field.number: field.message_type for field in descriptor.fields if field.message_type is not None}

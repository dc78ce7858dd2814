"""The known word that is nearest to a misspelt one, for messages about mistakes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

#: Characters of a word, and known words, that are compared at most: the time is their product.
_MOST_CHARACTERS: Final = 64
_MOST_WORDS: Final = 1000
#: The least ratio of two words that count as near, from 0 to 1: "frobnicate" is near no command.
_NEAR: Final = 0.6


def nearest(word: object, known: Iterable[str]) -> str | None:
    """Return the known word that is nearest to ``word``, or None if none is near.

    A word is near the only one that it begins, too. The case of letters and the dashes of options do not count. Names that
    a terminal cannot show are left out.
    """
    if not isinstance(word, str) or not 0 < len(word) <= _MOST_CHARACTERS:
        return None
    from difflib import get_close_matches

    words = {_plain(each): each for each in islice(known, _MOST_WORDS) if _is_shown(each)}
    longer = [each for each in words if len(word) > 1 and each.startswith(_plain(word))]
    found = longer if len(longer) == 1 else get_close_matches(_plain(word), words, 1, _NEAR)
    return words[found[0]] if found else None


def describe_type(value: object) -> str:
    """Return the type of a value that was given by mistake: ``int``, ``the class Graph``, ``a function``."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return "None" if value is None else type(value).__name__


def _is_shown(word: object) -> bool:
    """Return whether a message shows a known word; names of damaged model files may be bytes."""
    return isinstance(word, str) and len(word) <= _MOST_CHARACTERS and word.isprintable()


def _plain(word: str) -> str:
    return word.lower().lstrip("-")


def hint(word: object, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown word: ``; the nearest is 'workers'``, or nothing."""
    found = nearest(word, known)
    return "" if found is None else f"; the nearest is {found!r}"

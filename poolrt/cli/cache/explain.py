"""`poolrt cache explain`: the fields in which a missed key differs from the nearest entries."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any, Final

from poolrt.cli.report import Report, UsageError, seconds_text
from poolrt.spelling import hint

from .described import name_text
from .reasons import reasons
from .values import EXPECTED, age_text, find_digest, is_prefix, readable, stored_key

if TYPE_CHECKING:
    from poolrt.cachestore import CacheStore, Key
    from poolrt.cachestore.explain import Explanation

#: Default number of misses to explain.
LAST: Final = 10
#: Most differences shown for one entry.
_MOST_SHOWN: Final = 12


def explain(options: argparse.Namespace, store: CacheStore, report: Report) -> int:
    """Explain one key, or the latest misses of this node."""
    if options.key is not None:
        keys = [_find(store, options.key)]
    else:
        keys = [miss.key for miss in reversed(store.misses(options.last))]
        if not keys:
            report.say("no recent misses on this node")
    now = time.time()
    found = store.explain(*keys)
    for number, explanation in enumerate(found):
        if number:
            report.say()
        there = store.key_of(explanation.near[0].digest) if explanation.near else None
        _print_explanation(explanation, there, now, report)
    report.result({"explanations": [_as_json(explanation, now) for explanation in found]})
    return 0


def _find(store: CacheStore, text: str) -> Key:
    """Return a key by the beginning of its digest, or the latest one of a function by its name.

    It is one of the recent misses of this node, or of an entry.
    """
    missed = {miss.key.digest: miss.key for miss in store.misses()}
    entries = store.entries()
    # The latest miss is the last one, the latest entry the first one.
    keys = [*reversed(missed.values()), *(entry.key for entry in entries if entry.key is not None)]
    names = {name: key for key in reversed(keys) for name in _names(key)}
    if text in names:
        return names[text]
    if not is_prefix(text):
        raise UsageError(f"{text}: {EXPECTED}, or the name of a function that the cache has{hint(text, names)}")
    digest = find_digest({*missed, *(entry.digest for entry in entries)}, text, "entry and no recent miss of this node")
    return missed.get(digest) or stored_key(store, digest)


def _names(key: Key) -> tuple[str, ...]:
    """Return the names by which a function's key is found: with its module, and without."""
    function = key.fields.get("function")
    if not isinstance(function, str):
        return ()
    short = function.rpartition(".")[2]
    return (short, function) if short != function else (function,)


def _print_explanation(found: Explanation, there: Key | None, now: float, report: Report) -> None:
    fields = found.key.fields
    function = fields.get("function") if isinstance(fields.get("function"), str) else None
    words = [f"{found.key.digest[:16]} {found.kind or 'without a kind'}"]
    if function is not None:
        words[0] += f" {name_text(function)}{name_text(str(fields.get('signature', '')).removeprefix('void'))}"
    if found.missed is not None:
        words.append(f"missed {age_text(max(0.0, now - found.missed))} ago")
    if found.stored is not None:
        meta = found.stored.meta
        words.append(f"then created by {meta.creator or '?'} in {seconds_text(meta.seconds)}")
        if (found.stored.creations or 1) > 1:
            words.append(f"the kept one of {found.stored.creations} creations")
    else:
        words.append("not stored now")
    report.say(", ".join(words))
    was = "was" if found.missed is not None else "is"
    if not found.near or there is None:
        report.say(f"  no near entry: there {was} none of its kind")
        return
    if function is not None and there.fields.get("function") != function:
        report.say(f"  no near entry: there {was} none of function {name_text(function)}")
        return
    near = found.near[0]
    made = f"{near.creator or '?'}, {age_text(max(0.0, now - near.created))} ago, {seconds_text(near.seconds)}"
    count = f"{found.compared} entries are near" if found.compared > 1 else "1 entry is near"
    nearest = f"  {count}; nearest {near.digest[:16]} ({made}) differs in"
    lines = reasons(fields, there.fields, near.differences)
    if len(lines) > _MOST_SHOWN:
        lines[_MOST_SHOWN:] = [f"and {len(lines) - _MOST_SHOWN} more"]
    if len(lines) == 1:
        report.say(f"{nearest} {lines[0]}")
        return
    report.say(nearest)
    for line in lines:
        report.say(f"    {line}")


def _as_json(found: Explanation, now: float) -> dict[str, Any]:
    stored = found.stored
    return {
        "digest": found.key.digest,
        "kind": found.kind,
        "missed_s": max(0.0, now - found.missed) if found.missed is not None else None,
        "stored": None
        if stored is None
        else {
            "creator": stored.meta.creator,
            "toolchain": stored.meta.toolchain,
            "age_s": max(0.0, now - stored.meta.created),
            "seconds": stored.meta.seconds,
            "creations": stored.creations,
        },
        "compared": found.compared,
        "near": [
            {
                "digest": near.digest,
                "creator": near.creator,
                "toolchain": near.toolchain,
                "age_s": max(0.0, now - near.created),
                "seconds": near.seconds,
                # A key without the field has no value here; null is a value.
                "differences": [
                    {"field": path, **_side("there", there), **_side("here", here)}
                    for path, (here, there) in near.differences.items()
                ],
            }
            for near in found.near
        ],
    }


def _side(name: str, value: Any) -> dict[str, Any]:
    from poolrt.cachestore import ABSENT

    return {} if value is ABSENT else {name: readable(value)}

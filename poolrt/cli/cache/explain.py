"""`poolrt cache explain`: the fields in which a missed key differs from the nearest entries."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any, Final

from poolrt.cli.report import Report, seconds_text

from .values import age_text, find_digest, readable, short_text, stored_key

if TYPE_CHECKING:
    from poolrt.cachestore import CacheStore, Key
    from poolrt.cachestore.explain import Explanation, Near

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
        _print_explanation(explanation, now, report)
    report.result({"explanations": [_as_json(explanation, now) for explanation in found]})
    return 0


def _find(store: CacheStore, text: str) -> Key:
    """Return the key with this beginning of its digest among the recent misses of this node and all entries."""
    missed = {miss.key.digest: miss.key for miss in store.misses()}
    digests = {*missed, *(entry.digest for entry in store.entries())}
    digest = find_digest(digests, text, "entry and no recent miss of this node")
    return missed.get(digest) or stored_key(store, digest)


def _print_explanation(found: Explanation, now: float, report: Report) -> None:
    words = [f"{found.key.digest[:16]} {found.kind or 'without a kind'}"]
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
    if not found.near:
        report.say(f"  no near entry: there {'was' if found.missed is not None else 'is'} none of its kind")
        return
    near = found.near[0]
    made = f"{near.creator or '?'}, {age_text(max(0.0, now - near.created))} ago, {seconds_text(near.seconds)}"
    count = f"{found.compared} entries are near" if found.compared > 1 else "1 entry is near"
    nearest = f"  {count}; nearest {near.digest[:16]} ({made}) differs in"
    lines = _differences(near)
    if len(lines) == 1:
        report.say(f"{nearest} {lines[0]}")
        return
    report.say(nearest)
    for line in lines:
        report.say(f"    {line}")


def _differences(near: Near) -> list[str]:
    lines = [
        f"{path}: {_text(there)}, here {_text(here)}"
        for path, (here, there) in list(near.differences.items())[:_MOST_SHOWN]
    ]
    more = len(near.differences) - len(lines)
    return [*lines, f"and {more} more"] if more else lines


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


def _text(value: Any) -> str:
    from poolrt.cachestore import ABSENT

    return "absent" if value is ABSENT else short_text(value)

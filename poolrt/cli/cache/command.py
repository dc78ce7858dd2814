"""`poolrt cache`: one function for each of its sub-commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from poolrt.cli.cache import bundles, prebuild
from poolrt.cli.cache.described import described, dtypes_text, name_text, shapes_text
from poolrt.cli.cache.explain import LAST, explain
from poolrt.cli.cache.values import age_text, find_digest, readable, stored_key
from poolrt.cli.command_line import add_common
from poolrt.cli.numbers import positive
from poolrt.cli.reach import reach
from poolrt.cli.report import Report, UsageError, bytes_text, seconds_text
from poolrt.settings import Settings
from poolrt.spelling import hint

if TYPE_CHECKING:
    from poolrt.cachestore import CacheStore

_DESCRIPTION: Final = """\
Inspect, bound, verify, export or clear the shared kernel cache.

Every action works on one namespace (POOLRT_NAMESPACE) and signing key (POOLRT_KEY_FILE) of one server: the server at
POOLRT_REDIS_URL, else this user's embedded server, which it starts if necessary. Entries of other keys in the namespace are
out of reach. Counters cover all processes that ever used the namespace with the key.
"""
_EPILOG: Final = """\
examples:
  poolrt cache stats
  poolrt cache list --limit 20
  poolrt cache show 3fa9                  any unambiguous beginning of a digest
  poolrt cache explain                    why the latest misses were misses
  poolrt cache capacity 4096 --bytes 2GiB
  poolrt cache verify && echo all entries are valid
  poolrt cache export kernels.bundle      and on another machine, with the same key file:
  poolrt cache import kernels.bundle
  poolrt cache clear
  poolrt cache down                       stop the embedded server; its data stay

every action has --json and --help
"""

_EXPLAIN: Final = """\
Show why a key was not found: the fields in which it differs from the nearest entries.

A key is compared with the entries of its kind, from any host, that existed when it was missed. The nearest entries
differ in the fewest fields; of a function of yours (poolrt.njit, poolrt.kernel) only its own entries count, and the text names
the callee, constant or option that changed. Without KEY: the latest misses of this node.
"""
_IMPORT: Final = """\
Import the entries of a file that `poolrt cache export` wrote, from any namespace.

The whole file is checked first. If it was signed with another key, or changed since, the command imports nothing of it
and fails. An import replaces and evicts nothing; entries without room within the capacity are left out, the least
recently used first.
"""

_Execute = Callable[[argparse.Namespace, Settings, Report], int]


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the sub-commands."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(
        name: str,
        line: str,
        examples: str,
        execute: _Execute,
        overrides: tuple[str, ...] = (),
        *,
        can_only_read: bool = False,
    ) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = actions.add_parser(
            name,
            help=line,
            description=f"{line[0].upper()}{line[1:]}.",
            epilog=f"examples:\n{examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if can_only_read:
            made.add_argument(
                "--read-only",
                action="store_true",
                default=None,
                help="write nothing: no counters, no removals; start no server",
            )
            overrides = (*overrides, "read_only")
        add_common(made, execute, overrides)
        return made

    action(
        "stats",
        "show entries, bytes, hits by tier, creations, waits, failures; store, processes and shared weights apart",
        "  poolrt cache stats\n  poolrt cache stats --json | jq .creations",
        _with_constants(_stats),
        can_only_read=True,
    )
    listing = action(
        "list",
        "list the entries, most recently used first: operation, shapes, data types, implementation, model that last asked",
        "  poolrt cache list --limit 20\n  poolrt cache list --kind numba\n  poolrt cache list --json | jq '.entries[].digest'",
        _with_store(_list),
        can_only_read=True,
    )
    listing.add_argument("--limit", type=positive, metavar="N", help="at most N entries")
    listing.add_argument(
        "--kind", metavar="KIND", help="entries of one kind: numba, kernel, opencl, or an operation such as matmul"
    )
    show = action(
        "show",
        "show one entry and every field of its key",
        "  poolrt cache show 3fa9          any unambiguous beginning of a digest",
        _with_store(_show),
        can_only_read=True,
    )
    show.add_argument("key", metavar="KEY", help="the digest of a key, or its beginning")
    explained = action(
        "explain",
        "show why a key was not found: the fields in which it differs from the nearest entries",
        "  poolrt cache explain                 the latest misses of this node\n"
        "  poolrt cache explain --last 3\n"
        "  poolrt cache explain 3fa9            any unambiguous beginning of a digest, missed or stored\n"
        "  poolrt cache explain service.scale   the latest miss of a function of yours, or its latest entry",
        _with_store(explain),
        can_only_read=True,
    )
    explained.description = _EXPLAIN
    explained.add_argument(
        "key", nargs="?", metavar="KEY", help="the digest of a key, its beginning, or the name of a function of yours"
    )
    explained.add_argument(
        "--last", type=positive, default=LAST, metavar="N", help=f"explain the N latest misses (default: {LAST})"
    )
    capacity = action(
        "capacity",
        "show or set the capacity of the namespace, for all nodes; 0 clears it and turns it off",
        "  poolrt cache capacity\n  poolrt cache capacity 4096 --bytes 2GiB\n  poolrt cache capacity 0",
        _with_store(_capacity),
        ("capacity", "capacity_bytes"),
    )
    capacity.add_argument("capacity", nargs="?", metavar="N", help="most entries")
    capacity.add_argument("--bytes", dest="capacity_bytes", metavar="B", help="most bytes, e.g. 512MiB; 0: no limit")
    action(
        "clear",
        "remove every entry of the namespace, on this node and in Redis, and this node's files of weights",
        "  poolrt cache clear",
        _with_constants(_clear),
    )
    action(
        "verify",
        "check the signature of every entry, remove the bad ones (unless read-only); exit status 1 if there were any",
        "  poolrt cache verify && echo all entries are valid",
        _with_store(_verify),
        can_only_read=True,
    )
    exported = action(
        "export",
        "write every entry to one signed file",
        "  poolrt cache export kernels.bundle",
        _with_store(bundles.export),
        can_only_read=True,
    )
    exported.add_argument("file", metavar="FILE", type=Path, help="the file; an existing one is replaced at the end")
    imported = action(
        "import",
        "import the entries of a file that `poolrt cache export` wrote",
        "  poolrt cache import kernels.bundle\n"
        "  POOLRT_KEY_FILE=/run/secrets/poolrt_key poolrt cache import kernels.bundle --node-only",
        _import,
    )
    imported.description = _IMPORT
    imported.add_argument("file", metavar="FILE", type=Path, help="the file")
    imported.add_argument(
        "--node-only",
        action="store_true",
        help="write this node's files only; Redis is neither asked nor started and gets entries as they are used",
    )
    prebuild.configure(
        action(
            "prebuild",
            "compile the kernels of well-known networks into the file that travels in the package",
            "  poolrt cache prebuild\n  poolrt cache prebuild model.onnx --only --output /srv/kernels.parts",
            prebuild.prebuild,
        )
    )
    action(
        "down",
        "stop the embedded server; its data stay, and its next use starts it again",
        "  poolrt cache down",
        _down,
    )


def _with_store(step: Callable[[argparse.Namespace, CacheStore, Report], int]) -> _Execute:
    def execute(options: argparse.Namespace, settings: Settings, report: Report) -> int:
        with _store(settings) as store:
            # Without Redis the store would show this node's entries alone, as if they were all.
            reach(store)
            return step(options, store, report)

    return execute


def _with_constants(step: Callable[[argparse.Namespace, CacheStore, Settings, Report], int]) -> _Execute:
    """As `_with_store`, for what also concerns the weights that processes of the node share."""
    return lambda options, settings, report: _with_store(
        lambda options, store, report: step(options, store, settings, report)
    )(options, settings, report)


def _import(options: argparse.Namespace, settings: Settings, report: Report) -> int:
    with _store(settings) as store:
        if not options.node_only:
            reach(store)
        return bundles.import_(options, store, report)


def _store(settings: Settings) -> CacheStore:
    from poolrt.cachestore import CacheStore

    try:
        return CacheStore.connect(**settings.store_arguments())
    except ValueError as error:
        raise UsageError(str(error)) from error


def _stats(options: argparse.Namespace, store: CacheStore, configured: Settings, report: Report) -> int:
    from poolrt.cachestore.constant_inspection import find_constants

    stats, constants = store.stats(), find_constants(configured.constants_folder)
    limit = bytes_text(stats["capacity_bytes"]) if stats["capacity_bytes"] else "no limit"
    hits, tiers, settings = stats["hits"], stats["tiers"], store.options
    rows = [
        ["store", f"namespace {settings.namespace}, shared by all processes and nodes"],
        ["entries", f"{stats['entries']} of {stats['capacity']}"],
        ["bytes", f"{bytes_text(stats['bytes'])} ({limit})"],
        ["hits", f"{hits['files']} in files, {hits['prebuilt']} prebuilt, {hits['redis']} in Redis"],
        [
            "misses",
            f"{stats['misses']} in no tier; {tiers['files']['misses']} in files, {tiers['redis']['misses']} in Redis",
        ],
        ["creations", f"{stats['creations']}, {stats['creation_errors']} failed"],
        ["waits", f"{stats['waits']} for another creator, {stats['takeovers']} creations taken over from a dead one"],
        ["repeated", f"{stats['duplicates']} results that existed already, {stats['late']} published without a lease"],
        ["evictions", str(stats["evictions"])],
        ["refused", f"{stats['corrupt']} corrupt, {stats['forged']} forged, {stats['malformed']} malformed replies"],
        ["degraded", f"{stats['degraded']} calls without Redis"],
        ["saved", f"{seconds_text(stats['seconds_saved'])} of compilation"],
    ]
    process = {"capacity": settings.capacity, "capacity_bytes": settings.memory_limit, "hits": hits["memory"]}
    names = ("entries", "bytes", "capacity", "capacity_bytes", "evictions")
    shared = {name: count for name, count in stats.items() if name in names}
    shared["hits"] = {tier: count for tier, count in hits.items() if tier != "memory"}
    rows += [
        ["process", "each has a memory of its own"],
        ["primitives", f"at most {settings.capacity}, {bytes_text(settings.memory_limit)}, as configured here"],
        ["hits", f"{hits['memory']} in the memory of all processes"],
        ["misses", f"{tiers['process']['misses']} there"],
    ]
    most = configured.constant_files_bytes
    users = ", ".join(map(str, constants.processes)) or "none"
    rows += [
        ["weights", "rearranged for kernels, in files that all processes of this node map"],
        [
            "files",
            f"{constants.files}, {bytes_text(constants.bytes)} of {bytes_text(most) if most else 'none: turned off'}",
        ],
        ["processes", f"{users}; {constants.unfinished} files are being written"],
    ]
    if constants.problems:
        rows.append(["problems", f"{len(constants.problems)}: see poolrt doctor"])
    report.say_table(rows)
    weights = {**constants._asdict(), "capacity_bytes": most, "problems": [list(each) for each in constants.problems]}
    report.result({**stats, "process": process, "store": shared, "constants": weights})
    return 0


def _list(options: argparse.Namespace, store: CacheStore, report: Report) -> int:
    entries = [entry for entry in store.entries() if options.kind in (None, entry.kind)]
    shown = entries[: options.limit]
    facts = [described(entry) for entry in shown]
    heads = [
        "digest",
        "operation",
        "shapes",
        "types",
        "implementation",
        "size",
        "last used",
        "created in",
        "times",
        "hits",
    ]
    of_functions = all(fact["function"] is not None for fact in facts) and bool(facts)
    if of_functions:
        heads[1:5] = ["kind", "function", "signature", "creator"]
    rows = [[*heads, "asked by"]]
    for entry, fact in zip(shown, facts, strict=True):
        made_in = seconds_text(entry.seconds) if entry.seconds is not None else "?"
        last_use = f"{age_text(entry.last_use_s)} ago"
        size, times = bytes_text(entry.bytes), "?" if entry.creations is None else str(entry.creations)
        what = [name_text(entry.kind or "?"), shapes_text(fact), dtypes_text(fact), fact["implementation"] or "?"]
        if fact["function"] is not None:
            what[1:3] = [name_text(fact["function"]), name_text(fact["signature"])]
        if of_functions:
            what[3] = name_text(entry.creator)
        rows.append(
            [entry.digest[:16], *what, size, last_use, made_in, times, str(entry.hits), name_text(entry.asked_by)]
        )
    if options.kind is not None and not entries:
        kinds = sorted({entry.kind for entry in store.entries() if entry.kind is not None})
        report.remark(
            f"no entry is of kind {options.kind!r}{hint(options.kind, kinds)}; kinds: {', '.join(kinds) or 'none'}"
        )
    report.say_table(rows, right=frozenset({5, 6, 7, 8, 9}))
    report.say(f"{len(shown)} of {len(entries)} entries")
    report.result({"count": len(entries), "entries": facts})
    return 0


def _show(options: argparse.Namespace, store: CacheStore, report: Report) -> int:
    entries = {entry.digest: entry for entry in store.entries()}
    entry = entries[find_digest(entries, options.key, "entry")]
    key = stored_key(store, entry.digest)
    fields = {name: readable(value) for name, value in key.fields.items()}
    facts = described(entry)
    report.say_table([[name, name_text(str(value))] for name, value in facts.items()])
    report.say("\nkey")
    report.say_table([[name, str(value)] for name, value in fields.items()], indent="  ")
    report.result({**facts, "key": fields})
    return 0


def _capacity(options: argparse.Namespace, store: CacheStore, report: Report) -> int:
    if options.capacity is not None or options.capacity_bytes is not None:
        # The settings have checked both and turned them into numbers.
        wanted = store.options
        store.set_capacity(
            wanted.capacity if options.capacity is not None else None,
            wanted.capacity_bytes if options.capacity_bytes is not None else None,
        )
    stats = store.stats()
    limit = bytes_text(stats["capacity_bytes"]) if stats["capacity_bytes"] else "no limit in bytes"
    report.say(
        f"capacity {stats['capacity']} entries, {limit}; {stats['entries']} stored, {bytes_text(stats['bytes'])}"
    )
    report.result({name: stats[name] for name in ("capacity", "capacity_bytes", "entries", "bytes")})
    return 0


def _clear(options: argparse.Namespace, store: CacheStore, configured: Settings, report: Report) -> int:
    from poolrt.cachestore.constant_inspection import clear_constants

    removed = store.size
    store.clear()
    constants = clear_constants(configured.constants_folder)
    report.say(f"{removed} entries and {constants} files of weights removed")
    report.result({"removed": removed, "constants": constants})
    return 0


def _verify(options: argparse.Namespace, store: CacheStore, report: Report) -> int:
    found = store.verify()
    done = "found" if store.options.read_only else "removed"
    for problem in found.problems:
        report.say(f"{done} {problem.digest[:16]} in {problem.tier}: {problem.reason}")
    checked = f"{found.files_checked} entries in files and {found.redis_checked} in Redis checked"
    report.say(f"{checked}, {len(found.problems)} {done}")
    report.result(found.as_dict())
    return 1 if found.problems else 0


def _down(options: argparse.Namespace, settings: Settings, report: Report) -> int:
    if settings.redis_url:
        raise UsageError("POOLRT_REDIS_URL names a server that poolrt did not start; stop it where it was started")
    with _store(settings) as store:
        stopped = store.down()
    report.say("stopped" if stopped else "was not running")
    report.result({"stopped": stopped})
    return 0

"""Words of a command line that no parser knows: the error names the nearest option, or the option's place."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from poolrt.spelling import hint, nearest

from .report import UsageError

_NUMBER: Final = re.compile(r"-(\d+|\d*\.\d+)(e-?\d+)?", re.IGNORECASE)


def require_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Raise UsageError for the first word that is written as an option and is none of its command.

    argparse reports it last, after what follows from it, such as an argument that seems to be missing.
    """
    rest = list(words)
    while rest and (word := rest.pop(0)) != "--":
        if _is_option(word):
            name = word.partition("=")[0]
            if not _knows(parser, name):
                raise UsageError(_describe(parser, name, rest))
        else:
            parser = _commands(parser).get(word, parser)


def describe_choice(action: argparse.Action, value: object, prog: str) -> str:
    """Return the message for a word that is no command, or no action of a command."""
    known = list(cast("dict[str, Any]", action.choices))
    text = f"argument {action.metavar}: invalid choice: {value!r}"
    if str(value) == "help":
        return f"{text}; write {prog} --help"
    if str(value).endswith(".onnx") and "run" in known:
        return f"{text}; to run a model, write {prog} run {value} (see {prog} run --help)"
    return f"{text}{hint(value, known)}; choose from {', '.join(known)} (see {prog} --help)"


def describe_rest(parser: argparse.ArgumentParser, words: Sequence[str], rest: Sequence[str]) -> str:
    """Return the message for words that are left over."""
    parser = _command_of(parser, words)
    taken = [str(action.metavar or action.dest) for action in _positional(parser)]
    takes = f"takes {' '.join(taken)}" if taken else "takes options only"
    return f"unrecognized arguments: {' '.join(rest)}; {parser.prog} {takes} (see {parser.prog} --help)"


def describe_value(parser: argparse.ArgumentParser, words: Sequence[str], name: str, reason: str) -> str:
    """Return the message for the value of an option, or of a positional argument, that overrides the setting ``name``."""
    parser = _command_of(parser, words)
    action = next(each for each in parser._actions if each.dest == name)
    shown = "/".join(action.option_strings) or action.metavar
    return f"argument {shown}: {reason} (see {parser.prog} --help)"


def _describe(parser: argparse.ArgumentParser, name: str, rest: Sequence[str]) -> str:
    """Return the message for an unknown option before the words ``rest``."""
    commands = _commands(parser)
    inner = next((commands[word] for word in rest if word in commands), None)
    if inner is not None:
        deepest = _command_of(inner, rest[rest.index(inner.prog.rpartition(" ")[2]) + 1 :])
        if _knows(deepest, name):
            return f"the option {name} goes behind the command: {deepest.prog} {name} (see {deepest.prog} --help)"
    text = f"unrecognized arguments: {name}"
    if commands and inner is None and not nearest(name, _options(parser)):
        return f"{text}; a command comes first: {', '.join(commands)} (see {parser.prog} --help)"
    place = parser if inner is None else inner
    return f"{text}{hint(name, _options(place))} (see {place.prog} --help)"


def _command_of(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of the command, or action of a command, that words name."""
    for word in words:
        parser = _commands(parser).get(word, parser)
    return parser


def _is_option(word: str) -> bool:
    return word.startswith("-") and word != "-" and " " not in word and not _NUMBER.fullmatch(word)


def _knows(parser: argparse.ArgumentParser, name: str) -> bool:
    return name in _options(parser)


def _options(parser: argparse.ArgumentParser) -> list[str]:
    return [option for action in parser._actions for option in action.option_strings]


def _positional(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    return (action for action in parser._actions if not action.option_strings)


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in _positional(parser):
        if isinstance(action, argparse._SubParsersAction):
            return cast("dict[str, argparse.ArgumentParser]", action.choices)
    return {}

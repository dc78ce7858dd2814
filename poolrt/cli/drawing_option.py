"""The option --draw of the commands that know a model's plan."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from poolrt.cli.report import JobFailed, UsageError

if TYPE_CHECKING:
    from poolrt.explained_plan import ExplainedPlan


def add_draw(parser: argparse._ActionsContainer) -> None:
    """Add the option."""
    parser.add_argument(
        "--draw",
        type=_picture,
        metavar="FILE.svg",
        help="draw the graph: a colour for each kind of implementation, the shapes of tensors, inserted reorders",
    )


def require_folder(path: Path | None) -> None:
    """Raise UsageError if the folder of a picture does not exist."""
    if path is not None and not path.parent.is_dir():
        raise UsageError(f"--draw {path}: there is no folder {path.parent}")


def write_drawing(path: Path, plan: ExplainedPlan, title: str) -> None:
    """Write the picture of a plan, in full or not at all. Raises JobFailed if it is too large or cannot be written."""
    from poolrt.drawing import TooLarge, draw_svg, make_diagram

    draft = path.with_name(f".{path.name}.part")
    try:
        draft.write_text(draw_svg(make_diagram(plan, title)), encoding="utf-8")
        draft.replace(path)
    except TooLarge as error:
        raise JobFailed(f"--draw {path}: {error}") from error
    except OSError as error:
        raise JobFailed(f"--draw {path}: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)


def _picture(text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() != ".svg":
        raise argparse.ArgumentTypeError(f"expected FILE.svg, got {text}")
    return path

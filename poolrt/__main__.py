"""`python -m poolrt`: the same as the command `poolrt`."""

from __future__ import annotations

from poolrt.cli import main

if __name__ == "__main__":
    main()

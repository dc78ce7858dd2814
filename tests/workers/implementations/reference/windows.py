"""Windows over spatial dimensions, drawn at random."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.workers.desc.windows import Window, drawn


@st.composite
def windows(draw: st.DrawFn) -> Window:
    """Draw a window, mostly in up to 3 dimensions."""
    return drawn(lambda low, high: draw(st.integers(low, high)), draw(st.sampled_from((1, 1, 2, 2, 2, 3, 3, 4))))

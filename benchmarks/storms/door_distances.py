"""A function that functions of another module call."""

from __future__ import annotations

from door_decorators import njit


@njit
def squared_distance(points, i, others, j):
    """Return the squared distance of two rows."""
    total = 0.0
    for axis in range(points.shape[1]):
        difference = points[i, axis] - others[j, axis]
        total += difference * difference
    return total

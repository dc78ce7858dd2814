"""Twelve functions as users write them, one of them in another module: all are compiled at their first call.

`smoothed` is a generalized ufunc, `escapes` is parallel, `cluster_step` and `interactions` call the other module.
"""

from __future__ import annotations

import numpy as np
from door_decorators import guvectorize, njit
from door_distances import squared_distance
from numba import prange


@njit
def fir(signal, taps):
    """Filter a signal with a finite impulse response."""
    result = np.zeros(signal.shape[0] - taps.shape[0] + 1)
    for i in range(result.shape[0]):
        for j in range(taps.shape[0]):
            result[i] += signal[i + j] * taps[taps.shape[0] - 1 - j]
    return result


@njit
def warping_distance(a, b, window):
    """Return the cost of the best alignment of two series (dynamic time warping) within a window."""
    cost = np.full((a.shape[0] + 1, b.shape[0] + 1), np.inf)
    cost[0, 0] = 0.0
    for i in range(1, a.shape[0] + 1):
        for j in range(max(1, i - window), min(b.shape[0], i + window) + 1):
            step = min(cost[i - 1, j], cost[i, j - 1], cost[i - 1, j - 1])
            cost[i, j] = abs(a[i - 1] - b[j - 1]) + step
    return cost[a.shape[0], b.shape[0]]


@njit(parallel=True)
def escapes(width, height, limit):
    """Count the iterations in which each point of a picture leaves the Mandelbrot set."""
    counts = np.zeros((height, width), np.int32)
    for row in prange(height):
        for column in range(width):
            c = complex(3.0 * column / width - 2.0, 2.0 * row / height - 1.0)
            z = 0j
            while z.real * z.real + z.imag * z.imag < 4.0 and counts[row, column] < limit:
                z = z * z + c
                counts[row, column] += 1
    return counts


@njit
def group_means(groups, values, count):
    """Return the mean of the values of each group, not a number for an empty one."""
    sums, numbers = np.zeros(count), np.zeros(count, np.int64)
    for i in range(groups.shape[0]):
        sums[groups[i]] += values[i]
        numbers[groups[i]] += 1
    for i in range(count):
        sums[i] = sums[i] / numbers[i] if numbers[i] else np.nan
    return sums


@njit
def cluster_step(points, centers):
    """Return the centers of the points that are nearest to each center (one step of k-means)."""
    sums, numbers = np.zeros(centers.shape), np.zeros(centers.shape[0])
    for i in range(points.shape[0]):
        best, nearest = np.inf, 0
        for j in range(centers.shape[0]):
            distance = squared_distance(points, i, centers, j)
            if distance < best:
                best, nearest = distance, j
        numbers[nearest] += 1
        for axis in range(points.shape[1]):
            sums[nearest, axis] += points[i, axis]
    for j in range(centers.shape[0]):
        for axis in range(points.shape[1]):
            sums[j, axis] /= max(numbers[j], 1.0)
    return sums


@njit
def interactions(places, masses, softening):
    """Return the accelerations of bodies that attract each other."""
    result = np.zeros_like(places)
    for i in range(places.shape[0]):
        for j in range(places.shape[0]):
            if i != j:
                square = squared_distance(places, i, places, j) + softening
                result[i] += (places[j] - places[i]) * (masses[j] / (square * np.sqrt(square)))
    return result


@guvectorize(["void(f8[:], f8, f8[:])"], "(n),()->(n)")
def smoothed(series, weight, result):
    """Smooth a series exponentially."""
    result[0] = series[0]
    for i in range(1, series.shape[0]):
        result[i] = weight * series[i] + (1.0 - weight) * result[i - 1]


@njit
def edit_distance(a, b):
    """Return the number of insertions, deletions and substitutions between two texts of codes (Levenshtein)."""
    row = np.arange(b.shape[0] + 1)
    for i in range(a.shape[0]):
        diagonal, row[0] = row[0], i + 1
        for j in range(b.shape[0]):
            cost = diagonal + (a[i] != b[j])
            diagonal = row[j + 1]
            row[j + 1] = min(cost, row[j] + 1, row[j + 1] + 1)
    return row[b.shape[0]]


@njit
def heat_step(field, factor):
    """Return a field of temperatures one step later; its border keeps its own."""
    result = field.copy()
    for i in range(1, field.shape[0] - 1):
        for j in range(1, field.shape[1] - 1):
            around = field[i - 1, j] + field[i + 1, j] + field[i, j - 1] + field[i, j + 1]
            result[i, j] += factor * (around - 4.0 * field[i, j])
    return result


@njit
def histogram(x, y, bins):
    """Count points of the unit square in bins."""
    counts = np.zeros((bins, bins), np.int64)
    for i in range(x.shape[0]):
        counts[min(int(x[i] * bins), bins - 1), min(int(y[i] * bins), bins - 1)] += 1
    return counts


@njit
def rolling_maximum(values, width):
    """Return the largest of the last values at each place, with a queue of candidates."""
    result = np.empty(values.shape[0] - width + 1)
    queue = np.empty(values.shape[0], np.int64)
    first, last = 0, 0
    for i in range(values.shape[0]):
        while last > first and values[queue[last - 1]] <= values[i]:
            last -= 1
        queue[last] = i
        last += 1
        if queue[first] <= i - width:
            first += 1
        if i >= width - 1:
            result[i - width + 1] = values[queue[first]]
    return result


def call_all():
    """Call every function once and check the results."""
    series = np.arange(50.0) % 7.0
    np.testing.assert_allclose(fir(series, np.ones(3)), np.convolve(series, np.ones(3), "valid"))
    assert warping_distance(series, series, 5) == 0.0
    assert escapes(16, 16, 50).max() == 50
    assert group_means(np.arange(50) % 5, np.arange(50) % 5 * 1.0, 5).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    points = np.stack((series, series), 1)
    np.testing.assert_allclose(cluster_step(points, np.zeros((1, 2))), points.mean(0, keepdims=True))
    assert interactions(np.array([[0.0, 0.0], [1.0, 0.0]]), np.ones(2), 0.0).tolist() == [[1.0, 0.0], [-1.0, 0.0]]
    assert smoothed(np.ones(9), 0.5).tolist() == [1.0] * 9
    assert edit_distance(np.frombuffer(b"kitten", np.uint8), np.frombuffer(b"sitting", np.uint8)) == 3
    assert heat_step(np.ones((5, 5)), 0.1).tolist() == np.ones((5, 5)).tolist()
    assert histogram(np.full(4, 0.99), np.zeros(4), 10)[9, 0] == 4
    np.testing.assert_allclose(
        rolling_maximum(series, 5), np.lib.stride_tricks.sliding_window_view(series, 5).max(axis=1)
    )

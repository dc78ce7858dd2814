"""OpenCL programs as users write them, and what they compute in NumPy."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

SIZE: Final = 256
LOCAL: Final = 32

#: A kernel ``f(x, y)`` of so many values each; CONSTANT is a number.
_TEXTS: Final = {
    "smooth": """
__kernel void f(__global const float *x, __global float *y) {
    __local float tile[LOCAL + 2 * WIDTH];
    int i = get_global_id(0), l = get_local_id(0), n = get_global_size(0);
    tile[l + WIDTH] = x[i];
    if (l < WIDTH) {
        tile[l] = i >= WIDTH ? x[i - WIDTH] : 0.0f;
        tile[l + LOCAL + WIDTH] = i + LOCAL < n ? x[i + LOCAL] : 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float sum = 0.0f;
    for (int j = -WIDTH; j <= WIDTH; j++) sum += tile[l + WIDTH + j];
    y[i] = sum * CONSTANT;
}
""",
    "escape": """
__kernel void f(__global const float *x, __global float *y) {
    int i = get_global_id(0), count = 0;
    float re = 0.0f, im = 0.0f;
    while (re * re + im * im < 4.0f && count < 100) {
        float next = re * re - im * im + x[i];
        im = 2.0f * re * im + x[i] * 0.5f;
        re = next;
        count++;
    }
    y[i] = count * CONSTANT;
}
""",
    "reduce": """
__kernel void f(__global const float *x, __global float *y) {
    __local float parts[LOCAL];
    int i = get_global_id(0), l = get_local_id(0);
    parts[l] = x[i];
    for (int step = LOCAL / 2; step > 0; step /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (l < step) parts[l] += parts[l + step];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    y[i] = parts[0] * CONSTANT;
}
""",
    "newton": """
__kernel void f(__global const float *x, __global float *y) {
    int i = get_global_id(0);
    float root = x[i] + 1.0f;
    for (int k = 0; k < 20; k++) root = 0.5f * (root + (x[i] + 1.0f) / root);
    y[i] = root * root * CONSTANT;
}
""",
}


def program(number: int) -> str:
    """Return the source of a program."""
    text = list(_TEXTS.values())[number % len(_TEXTS)]
    return f"#define LOCAL {LOCAL}\n#define WIDTH 2\n#define CONSTANT {number + 1}.0f\n{text}"


def values() -> Any:
    """Return what the programs are applied to."""
    return np.linspace(0.0, 0.2, SIZE, dtype=np.float32)


def check(number: int, result: Any) -> None:
    """Raise AssertionError unless a program's result is right."""
    x = values().astype(np.float64)
    name = list(_TEXTS)[number % len(_TEXTS)]
    if name == "smooth":
        expected = np.convolve(x, np.ones(5), "same")
    elif name == "reduce":
        expected = np.repeat(x.reshape(-1, LOCAL).sum(1), LOCAL)
    elif name == "newton":
        expected = x + 1.0
    else:
        assert (result % (number + 1) == 0).all()
        assert result.max() == 100 * (number + 1)
        return
    np.testing.assert_allclose(result, expected * (number + 1), rtol=1e-4)

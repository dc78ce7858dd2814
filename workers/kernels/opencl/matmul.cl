/* dst = src (M, K) by weights (K, N), plus a row of N if there is a BIAS, for each of a batch.
 *
 * The batch has up to three dimensions (the first one's size is implied), over which each operand has strides (0 if it
 * is broadcast). An item is ROWS rows of V columns; the last block of columns is moved back to end with the row.
 */
__kernel void matmul(SOURCE(src), SOURCE(weights), TARGET(dst), long items, long m, long n, long k,
                     long size1, long size2, long s0, long s1, long s2, long w0, long w1, long w2
#if BIAS
                     , SOURCE(bias)
#endif
                     OTHER)
{
    long item = ITEM;
    if (item >= items)
        return;
    long blocks = (n + V - 1) / V, parts = (m + ROWS - 1) / ROWS;
    long x = item % blocks * V, start = n < V ? x : min(x, n - V), rest = item / blocks;
    long first = rest % parts * ROWS;
    long batch = rest / parts;
    long i2 = batch % size2, i1 = batch / size2 % size1, i0 = batch / size2 / size1;
    int rows = (int)min(m - first, (long)ROWS);
    __global const float *a = source_at(src) + i0 * s0 + i1 * s1 + i2 * s2 + first * k;
    __global const float *b = source_at(weights) + i0 * w0 + i1 * w1 + i2 * w2 + start;
    long row[ROWS];
    vec sums[ROWS];
#if BIAS
    vec initial = load_lanes(source_at(bias) + start, n - start);
#else
    vec initial = 0.0f;
#endif
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        row[r] = (r < rows ? r : rows - 1) * k;
        sums[r] = initial;
    }
    if (n >= V)
        for (long i = 0; i < k; ++i) {
            vec value = vec_load(b + i * n);
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
                sums[r] = mad((vec)a[row[r] + i], value, sums[r]);
        }
    else
        for (long i = 0; i < k; ++i) {
            vec value = load_lanes(b + i * n, n);
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
                sums[r] = mad((vec)a[row[r] + i], value, sums[r]);
        }
    for (int r = 0; r < rows; ++r)
        finish(sums[r], target_at(dst), other_at(), (batch * m + first + r) * n + start, x - start, n - start);
}

/* dst = src (N, IC) by the transpose of weights (OC, IC), plus OC values if there is a BIAS.
 *
 * Both operands run along IC, so sums are kept in vectors along it. An item is ROWS rows of src by COLUMNS rows of weights.
 */
__kernel void inner_product(SOURCE(src), SOURCE(weights), TARGET(dst), long items, long n, long ic, long oc
#if BIAS
                            , SOURCE(bias)
#endif
                            OTHER)
{
    long item = ITEM;
    if (item >= items)
        return;
    long parts = (oc + COLUMNS - 1) / COLUMNS;
    long column = item % parts * COLUMNS, first = item / parts * ROWS;
    int rows = (int)min(n - first, (long)ROWS), columns = (int)min(oc - column, (long)COLUMNS);
    __global const float *from = source_at(src) + first * ic;
    __global const float *w = source_at(weights) + column * ic;
    long row[ROWS], line[COLUMNS];
    vec sums[ROWS][COLUMNS];
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c)
        line[c] = (c < columns ? c : columns - 1) * ic;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        row[r] = (r < rows ? r : rows - 1) * ic;
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c)
            sums[r][c] = 0.0f;
    }
    long whole = ic / V * V;
    for (long i = 0; i < whole; i += V) {
        vec values[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
            values[r] = vec_load(from + row[r] + i);
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            vec weight = vec_load(w + line[c] + i);
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
                sums[r][c] = mad(values[r], weight, sums[r][c]);
        }
    }
    float tails[ROWS][COLUMNS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c)
            tails[r][c] = sum_lanes(sums[r][c]);
    for (long i = whole; i < ic; ++i)
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c)
                tails[r][c] += from[row[r] + i] * w[line[c] + i];
    for (int r = 0; r < rows; ++r) {
        float lanes[V] = {0.0f};
        for (int c = 0; c < columns; ++c) {
            lanes[c] = tails[r][c];
#if BIAS
            lanes[c] += source_at(bias)[column + c];
#endif
        }
        finish(vec_load(lanes), target_at(dst), other_at(), (first + r) * oc + column, 0, columns);
    }
}

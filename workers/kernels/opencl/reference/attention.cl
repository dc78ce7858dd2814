/* The mean of values for each query, weighted by the softmax of its scores. An item is a query.
 *
 * `masked` is 0 without a mask, 1 if it is added, 2 if it is a truth value; `shared` heads have one key. The scores are
 * computed twice, for the largest and for the weights. An item has `width` numbers of the scratchpad.
 */
static real score(tensor query, tensor key, tensor mask, long masked, long row, long number, long place, long depth,
                  real scale)
{
    real bias = masked ? fetch(mask, place) : 0, sum = 0;
    if (masked == 2 && bias == 0)
        return -INFINITY;
    for (long i = 0; i < depth; ++i)
        sum += fetch(query, row * depth + i) * fetch(key, number * depth + i);
    return sum * scale + (masked == 1 ? bias : 0);
}

__kernel void attention(PRIMITIVE, long query, long key, long value, long mask, long dst, long chain, long masked,
                        long shared, long keys, long depth, long width, long causal, MEMORY(scratch),
                        FRACTION(scale) OPERANDS)
{
    BEGIN(item);
    tensor q = tensor_at(query), k = tensor_at(key), v = tensor_at(value), m = tensor_at(mask), to = tensor_at(dst);
    real factor = fraction(scale);
    long rows = size_of(to, 2), first = item / rows / shared * keys, count = keys;
    if (causal)
        count = min(keys, item % rows + 1 + keys - rows);
    real largest = -INFINITY, total = 0;
    for (long t = 0; t < count; ++t) {
        real x = score(q, k, m, masked, item, first + t, item * keys + t, depth, factor);
        largest = largest > x || x != x ? largest : x;
    }
    if (largest == -INFINITY)
        largest = 0;
    __global real *sums = (__global real *)(scratch_base + scratch_offset) + item * width;
    for (long i = 0; i < width; ++i)
        sums[i] = 0;
    for (long t = 0; t < count; ++t) {
        real x = score(q, k, m, masked, item, first + t, item * keys + t, depth, factor);
        if (x == -INFINITY)
            continue;
        real weight = exp(x - largest);
        total += weight;
        for (long i = 0; i < width; ++i)
            sums[i] += weight * fetch(v, (first + t) * width + i);
    }
    for (long i = 0; i < width; ++i)
        finish(total != 0 ? sums[i] / total : 0, to, table_at(chain), item * width + i);
}

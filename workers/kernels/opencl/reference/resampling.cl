/* dst = src at the place of each element of dst: elements weighed by products of weights, one a dimension.
 *
 * A table says what an index of dst sees along a dimension: for each of `taps` elements its number, -1 if the place is outside
 * of src, and its weight as an integer, 2**60 times the number. It begins with the place of each dimension's part.
 */
__kernel void resampling(PRIMITIVE, long src, long dst, long chain, long seen, long taps, FRACTION(extrapolation) OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src), to = tensor_at(dst);
    __global const long *table = table_at(seen);
    long corners = 1;
    for (int d = 2; d < rank_of(from); ++d)
        corners *= taps;
    real sum = 0;
    int outside = 0;
    for (long corner = 0; corner < corners; ++corner) {
        long rest = item, chosen = corner, source = 0, step = 1;
        real weight = 1;
        for (int d = rank_of(from) - 1; d >= 0; --d) {
            long index = rest % size_of(to, d);
            rest /= size_of(to, d);
            if (d >= 2) {
                __global const long *place = table + table[d - 2] + 2 * (index * taps + chosen % taps);
                chosen /= taps;
                index = place[0];
                weight *= (real)place[1] / (1L << 60);
                outside |= index < 0;
            }
            source += index * step;
            step *= size_of(from, d);
        }
        if (weight != 0 && !outside)
            sum += weight * fetch(from, source);
    }
    finish(outside ? fraction(extrapolation) : sum, to, table_at(chain), item);
}

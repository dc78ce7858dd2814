/* Pool windows. An item is an element of dst; the workspace, if any, gets the number of the winner in its window.
 *
 * NaN loses against every number in a maximum. Maxima of integers are exact.
 */
__kernel void pooling(PRIMITIVE, long src, long dst, long workspace, long chain, long window, long algorithm OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src), to = tensor_at(dst);
    __global const long *moved = table_at(window);
    int axes = rank_of(to);
    long taps = positions_of(moved, axes), winner = 0, count = 0, highest = 0;
    int exact = algorithm == POOLING_MAX && *table_at(chain) == 0 && wraps_as(from, to);
    real largest = -INFINITY, sum = 0;
    for (long position = 0; position < taps; ++position) {
        long index = item, rest = position, place = 0;
        int seen = 1;
        for (int d = axes - 1; d >= 2; --d) {
            long there = tap(moved, d, index % size_of(to, d), rest % kernel_size(moved, d), size_of(from, d));
            index /= size_of(to, d);
            rest /= kernel_size(moved, d);
            seen &= there >= 0;
            place += at(from, d, there);
        }
        if (!seen)
            continue;
        place += at(from, 0, index / size_of(to, 1)) + at(from, 1, index % size_of(to, 1));
        if (exact) {
            long number = read_whole(type_of(from), base_of(from) + place);
            if (count == 0 || is_less(highest, number, type_of(from))) {
                winner = position;
                highest = number;
            }
            ++count;
            continue;
        }
        real x = load(type_of(from), base_of(from) + place);
        winner = x > largest || count == 0 ? position : winner;
        largest = x > largest ? x : largest;
        sum += x;
        ++count;
    }
    if (workspace)
        put(winner, tensor_at(workspace), item);
    if (exact && count) {
        put_integer(highest, to, item);
        return;
    }
    real mean = sum / (algorithm == POOLING_AVG_INCLUDE_PADDING ? taps : max(count, 1L));
    finish(algorithm == POOLING_MAX ? largest : mean, to, table_at(chain), item);
}

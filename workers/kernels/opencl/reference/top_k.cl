/* The largest or smallest elements along an axis. An item is a row along it, of elements `inner` apart.
 *
 * Each result is the best of the elements that come after the result before it.
 */
static int is_better(real x, real y, long smallest)
{
    if (x != x || y != y)
        return x != x && y == y;
    return smallest ? x < y : x > y;
}

__kernel void top_k(PRIMITIVE, long src, long dst, long indices, long chain, long k, long size, long inner,
                    long smallest OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src), to = tensor_at(dst);
    long first = item / inner * size * inner + item % inner, last = -1;
    real before = 0;
    for (long number = 0; number < k; ++number) {
        long found = -1, place = item / inner * k * inner + number * inner + item % inner;
        real best = 0;
        for (long i = 0; i < size; ++i) {
            real x = fetch(from, first + i * inner);
            int after = last < 0 || is_better(before, x, smallest) || (i > last && !is_better(x, before, smallest));
            if (after && (found < 0 || is_better(x, best, smallest))) {
                found = i;
                best = x;
            }
        }
        before = best;
        last = found;
        copy_element(from, to, table_at(chain), 1, place, first + found * inner, 1);
        put(found, tensor_at(indices), place);
    }
}

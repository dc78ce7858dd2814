/* The index of the largest or smallest element along an axis. An item is a row along it, of elements `inner` apart. */
static int is_better(real x, real y, long smallest)
{
    if (x != x || y != y)
        return x != x && y == y;
    return smallest ? x < y : x > y;
}

__kernel void arg_reduction(PRIMITIVE, long src, long dst, long chain, long size, long inner, long smallest,
                            long last OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src);
    long first = item / inner * size * inner + item % inner, found = 0;
    real best = fetch(from, first);
    for (long i = 1; i < size; ++i) {
        real x = fetch(from, first + i * inner);
        if (is_better(x, best, smallest) || (last && !is_better(best, x, smallest))) {
            found = i;
            best = x;
        }
    }
    finish(found, tensor_at(dst), table_at(chain), item);
}

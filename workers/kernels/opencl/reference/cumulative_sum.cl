/* The sums of the elements up to each one along an axis. An item is a row along it, of elements `inner` apart. */
__kernel void cumulative_sum(PRIMITIVE, long src, long dst, long chain, long size, long inner, long exclusive,
                             long reverse OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src), to = tensor_at(dst);
    long first = item / inner * size * inner + item % inner;
    if (*table_at(chain) == 0 && are_whole(from, to)) {
        ulong added = 0;
        for (long i = 0; i < size; ++i) {
            long place = first + (reverse ? size - 1 - i : i) * inner;
            ulong last = added;
            added += (ulong)integer(from, place);
            put_integer((long)(exclusive ? last : added), to, place);
        }
        return;
    }
    real total = 0;
    for (long i = 0; i < size; ++i) {
        long place = first + (reverse ? size - 1 - i : i) * inner;
        real before = total;
        total += fetch(from, place);
        finish(exclusive ? before : total, to, table_at(chain), place);
    }
}

/* Add elements around a tensor, or cut some from it. An item is an element of dst.
 *
 * `margins` has for each dimension: elements added before, elements cut at the start, elements kept.
 */
static long modulo(long x, long y) { return (x % y + y) % y; }

/* The number, among `kept` elements, of the one for an index that counts from the first; -1 for the constant. */
static long padded_index(long mode, long index, long kept)
{
    if (index >= 0 && index < kept)
        return index;
    if (mode == 0)
        return -1;
    if (mode == 1)
        return index < 0 ? 0 : kept - 1;
    if (mode == 3)
        return modulo(index, kept);
    if (kept == 1)
        return 0;
    long period = 2 * (kept - 1), found = modulo(index, period);
    return found >= kept ? period - found : found;
}

__kernel void pad(PRIMITIVE, long src, long dst, long chain, long margins, long plain, long mode, FRACTION(value) OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src), to = tensor_at(dst);
    __global const long *margin = table_at(margins);
    long number = 0, step = 1, rest = item;
    int inside = 1;
    for (int d = rank_of(from) - 1; d >= 0; --d) {
        long index = padded_index(mode, rest % size_of(to, d) - margin[3 * d], margin[3 * d + 2]);
        inside = inside && index >= 0;
        number += (index + margin[3 * d + 1]) * step;
        step *= size_of(from, d);
        rest /= size_of(to, d);
    }
    if (inside)
        copy_element(from, to, table_at(chain), plain, item, number, 1);
    else
        finish(fraction(value), to, table_at(chain), item);
}

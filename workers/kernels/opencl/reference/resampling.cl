/* dst = src at the place of each element of dst: the nearest element, or its neighbours weighed. */
__kernel void resampling(PRIMITIVE, long src, long dst, long chain, long linear OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src), to = tensor_at(dst);
    long corners = linear ? 1L << (rank_of(from) - 2) : 1;
    real sum = 0;
    for (long corner = 0; corner < corners; ++corner) {
        long rest = item, chosen = corner, source = 0, step = 1;
        real weight = 1;
        for (int d = rank_of(from) - 1; d >= 0; --d) {
            long size = size_of(from, d), wanted = size_of(to, d), index = rest % wanted;
            rest /= wanted;
            /* Twice `wanted` is one element of src; the place is one element too far, to be positive. */
            long units = 2 * wanted, place = (2 * index + 1) * size - wanted + units;
            if (d >= 2 && !linear)
                index = (2 * index + 1) * size / units;
            else if (d >= 2) {
                real part = (real)(place % units) / units;
                weight *= chosen & 1 ? part : 1 - part;
                index = min(max(place / units - 1 + (chosen & 1), 0L), size - 1);
                chosen >>= 1;
            }
            source += index * step;
            step *= size;
        }
        if (weight != 0)
            sum += weight * fetch(from, source);
    }
    finish(sum, to, table_at(chain), item);
}

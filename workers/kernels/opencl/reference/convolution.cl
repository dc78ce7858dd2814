/* Convolve, forward or transposed: dst gathers all that reaches it. An item is an element of dst.
 *
 * Transposed, the window runs from src to dst; `swapped` weights have src's channels first.
 */
__kernel void convolution(PRIMITIVE, long src, long weights, long dst, long chain, long window, long groups,
                          long transposed, long swapped OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src), with = tensor_at(weights), to = tensor_at(dst);
    __global const long *moved = table_at(window);
    int axes = rank_of(to);
    long inputs = size_of(from, 1) / groups, outputs = size_of(to, 1) / groups, taps = positions_of(moved, axes);
    real sum = 0;
    for (long position = 0; position < taps; ++position) {
        long index = item, rest = position, number = 0, area = 1, a = 0, b = 0;
        int seen = 1;
        for (int d = axes - 1; d >= 2; --d) {
            long here = index % size_of(to, d), through = rest % kernel_size(moved, d);
            long size = size_of(from, d);
            long there = transposed ? tap_back(moved, d, here, through, size) : tap(moved, d, here, through, size);
            index /= size_of(to, d);
            rest /= kernel_size(moved, d);
            seen &= there >= 0;
            a += at(from, d, there);
            b += at(with, d, through);
            number += there * area;
            area *= size;
        }
        if (!seen)
            continue;
        long image = index / size_of(to, 1), channel = index % size_of(to, 1);
        a += at(from, 0, image);
        for (long i = 0; i < inputs; ++i) {
            long source = channel / outputs * inputs + i;
            long first = swapped ? source : channel, second = swapped ? channel % outputs : i;
            real x = load(type_of(from), base_of(from) + a + at(from, 1, source));
            real w = load(type_of(with), base_of(with) + b + at(with, 0, first) + at(with, 1, second));
            x = quantised(from, (image * size_of(from, 1) + source) * area + number, x);
            sum += x * quantised(with, (first * size_of(with, 1) + second) * taps + position, w);
        }
    }
    finish(sum, to, table_at(chain), item);
}

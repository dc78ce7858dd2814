/* dst = src / (k + alpha * sum of squares) ** beta. An item is an element.
 *
 * The window has `size` elements along each of the dimensions `first` .. `last`, `count` in all.
 */
__kernel void lrn(PRIMITIVE, long src, long dst, long chain, long first, long last, long size, long count,
                  FRACTION(alpha), FRACTION(beta), FRACTION(k) OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src);
    real squares = 0;
    for (long number = 0; number < count; ++number) {
        long rest = item, offsets = number, source = 0, step = 1;
        int inside = 1;
        for (int d = rank_of(from) - 1; d >= 0; --d) {
            long extent = size_of(from, d), index = rest % extent;
            if (first <= d && d <= last) {
                index += offsets % size - (size - 1) / 2;
                offsets /= size;
                inside &= index >= 0 && index < extent;
            }
            source += index * step;
            step *= extent;
            rest /= extent;
        }
        real x = inside ? fetch(from, source) : 0;
        squares += x * x;
    }
    real x = fetch(from, item) / pow(fraction(k) + fraction(alpha) * squares, fraction(beta));
    finish(x, tensor_at(dst), table_at(chain), item);
}

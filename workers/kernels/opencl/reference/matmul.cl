/* Multiply matrices. An item is an element of dst; both factors have records of the batch dimensions of dst.
 *
 * Products of integers whose arithmetic wraps are exact, without attributes and bias.
 */
__kernel void matmul(PRIMITIVE, long src, long weights, long dst, long chain OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src), with = tensor_at(weights), to = tensor_at(dst);
    int last = rank_of(to) - 1;
    long depth = size_of(from, last), rows = size_of(to, last - 1), columns = size_of(to, last);
    long row = item / columns, column = item % columns, matrix = row / rows, rest = matrix;
    long left = at(from, last - 1, row % rows), right = at(with, last, column);
    real sum = 0;
    for (int d = last - 2; d >= 0; --d) {
        left += at(from, d, rest % size_of(to, d));
        right += at(with, d, rest % size_of(to, d));
        rest /= size_of(to, d);
    }
    if (*table_at(chain) == 0 && wraps_as(from, with) && wraps_as(from, to)) {
        ulong found = 0;
        for (long k = 0; k < depth; ++k)
            found += (ulong)read_whole(type_of(from), base_of(from) + left + at(from, last, k))
                * (ulong)read_whole(type_of(with), base_of(with) + right + at(with, last - 1, k));
        put_integer((long)found, to, item);
        return;
    }
    for (long k = 0; k < depth; ++k) {
        real x = load(type_of(from), base_of(from) + left + at(from, last, k));
        real w = load(type_of(with), base_of(with) + right + at(with, last - 1, k));
        x = quantised(from, row * depth + k, x);
        sum += x * quantised(with, (matrix * depth + k) * columns + column, w);
    }
    finish(sum, to, table_at(chain), item);
}

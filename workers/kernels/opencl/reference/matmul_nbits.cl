/* Product by weights of a few bits. An item is an element of dst.
 *
 * `known` is 0 without zero points, 1 if each is a number, 2 if bytes hold them; `line` is how many of these a column has.
 */
__kernel void matmul_nbits(PRIMITIVE, long src, long weights, long scales, long points, long bias, long dst, long chain,
                           long known, long biased, long K, long N, long blocks, long nbytes, long line,
                           long bits OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src), by = tensor_at(weights), factors = tensor_at(scales), zeros = tensor_at(points);
    long row = item / N, column = item % N, count = 8 / bits, size = count * nbytes, most = (1 << bits) - 1;
    real total = 0;
    for (long block = 0; block < blocks; ++block) {
        long place = column * blocks + block;
        real point = (most + 1) / 2;
        if (known == 1)
            point = fetch(zeros, place);
        else if (known == 2)
            point = (long)fetch(zeros, column * line + block / count) >> block % count * bits & most;
        real scale = fetch(factors, place);
        for (long k = block * size; k < min(K, (block + 1) * size); ++k) {
            long inside = k - block * size;
            long stored = (long)fetch(by, place * nbytes + inside / count);
            real number = stored >> inside % count * bits & most;
            total += fetch(from, row * K + k) * ((number - point) * scale);
        }
    }
    if (biased)
        total += fetch(tensor_at(bias), column);
    finish(total, tensor_at(dst), table_at(chain), item);
}

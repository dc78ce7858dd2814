/* Copy floats between two strided layouts of up to six dimensions; along the innermost one dst is contiguous.
 *
 * The five outer dimensions count `rows` (the first one's size is implied). An item is a vector of a row.
 */
__kernel void copy(SOURCE(src), TARGET(dst), long rows, long inner, long step,
                   long size1, long size2, long size3, long size4,
                   long s0, long s1, long s2, long s3, long s4,
                   long d0, long d1, long d2, long d3, long d4)
{
    long item = ITEM, blocks = (inner + V - 1) / V;
    long row = item / blocks, x = item % blocks * V;
    if (row >= rows)
        return;
    long i4 = row % size4, rest = row / size4;
    long i3 = rest % size3;
    rest /= size3;
    long i2 = rest % size2;
    rest /= size2;
    long i1 = rest % size1, i0 = rest / size1;
    __global const float *from = source_at(src) + i0 * s0 + i1 * s1 + i2 * s2 + i3 * s3 + i4 * s4 + x * step;
    __global float *to = target_at(dst) + i0 * d0 + i1 * d1 + i2 * d2 + i3 * d3 + i4 * d4 + x;
    long count = min(inner - x, (long)V);
    if (step == 1 && count == V) {
        vec_store(vec_load(from), to);
        return;
    }
    for (long i = 0; i < count; ++i)
        to[i] = from[i * step];
}

/* dst = FUNCTION(src0, src1); a stride of 0 broadcasts a source along a dimension.
 *
 * dst is row-major: rows of `inner` floats, counted by four outer dimensions (the first one's size is implied). An item
 * is a vector of a row; along a row each source advances by 1 or by 0. dst may be src0.
 */
__kernel void binary(SOURCE(src0), SOURCE(src1), TARGET(dst), long rows, long inner, long step0, long step1,
                     long size1, long size2, long size3, long a0, long a1, long a2, long a3,
                     long b0, long b1, long b2, long b3 OTHER)
{
    long item = ITEM, blocks = (inner + V - 1) / V;
    long row = item / blocks, x = item % blocks * V;
    if (row >= rows)
        return;
    long i3 = row % size3, rest = row / size3;
    long i2 = rest % size2;
    rest /= size2;
    long i1 = rest % size1, i0 = rest / size1;
    __global const float *left = source_at(src0) + i0 * a0 + i1 * a1 + i2 * a2 + i3 * a3 + x * step0;
    __global const float *right = source_at(src1) + i0 * b0 + i1 * b1 + i2 * b2 + i3 * b3 + x * step1;
    vec a = step0 ? load_lanes(left, inner - x) : (vec)left[0];
    vec b = step1 ? load_lanes(right, inner - x) : (vec)right[0];
    finish(FUNCTION(a, b), target_at(dst), other_at(), row * inner + x, 0, inner - x);
}

/* Unfold images (N, G I, D, H, W) into rows (G, N, OD, OH, OW, I, KD, KH, KW): the windows of a convolution, 0 outside.
 *
 * S are strides, X distances between the elements of a window, P paddings. An item is the window of one channel.
 */
__kernel void unfold(SOURCE(src), TARGET(dst), long count, long N, long G, long I, long D, long H, long W,
                     long OD, long OH, long OW, long KD, long KH, long KW, long SD, long SH, long SW,
                     long XD, long XH, long XW, long PD, long PH, long PW)
{
    long item = ITEM;
    if (item >= count)
        return;
    long i = item % I, rest = item / I;
    long w = rest % OW * SW - PW;
    rest /= OW;
    long h = rest % OH * SH - PH;
    rest /= OH;
    long d = rest % OD * SD - PD;
    rest /= OD;
    long n = rest % N, g = rest / N;
    __global const float *image = source_at(src) + ((n * G + g) * I + i) * D * H * W;
    __global float *to = target_at(dst) + item * KD * KH * KW;
    for (long z = d; z < d + KD * XD; z += XD)
        for (long y = h; y < h + KH * XH; y += XH) {
            bool inside = z >= 0 && z < D && y >= 0 && y < H;
            __global const float *row = image + (z * H + y) * W;
            for (long x = w; x < w + KW * XW; x += XW)
                *to++ = inside && x >= 0 && x < W ? row[x] : 0.0f;
        }
}

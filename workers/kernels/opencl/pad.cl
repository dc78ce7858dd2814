/* Copy src planes with zeros around them, split into stride phases: position q of phase p holds src[q * stride + p - pad].
 *
 * A convolution then reads every tap at a fixed distance from the position it computes, whatever the stride. dst is
 * (planes, phases of d, h, w, then sizes of d, h, w); the last three dimensions are walked in vectors of a row.
 */
__kernel void pad(SOURCE(src), TARGET(dst), long rows, long depth, long height, long width,
                  long phases_d, long phases_h, long phases_w, long size_d, long size_h, long size_w,
                  long stride_d, long stride_h, long stride_w, long pad_d, long pad_h, long pad_w)
{
    long item = ITEM, blocks = (size_w + V - 1) / V;
    long row = item / blocks, x = item % blocks * V;
    if (row >= rows)
        return;
    long h = row % size_h, rest = row / size_h;
    long d = rest % size_d;
    rest /= size_d;
    long phase_w = rest % phases_w;
    rest /= phases_w;
    long phase_h = rest % phases_h;
    rest /= phases_h;
    long phase_d = rest % phases_d, plane = rest / phases_d;
    d = d * stride_d + phase_d - pad_d;
    h = h * stride_h + phase_h - pad_h;
    long w = x * stride_w + phase_w - pad_w;
    long count = min(size_w - x, (long)V);
    bool inside = d >= 0 && d < depth && h >= 0 && h < height;
    __global const float *from = source_at(src) + ((plane * depth + d) * height + h) * width + w;
    __global float *to = target_at(dst) + row * size_w + x;
    if (inside && stride_w == 1 && count == V && w >= 0 && w + V <= width) {
        vec_store(vec_load(from), to);
        return;
    }
    for (long i = 0; i < count; ++i) {
        long at = w + i * stride_w;
        to[i] = inside && at >= 0 && at < width ? from[i * stride_w] : 0.0f;
    }
}

/* Pooling as in pooling.cl; an item is a vector of neighbouring floats of a row of dst, for rows long enough to fill it. */
#if MAXIMUM
#define NOTHING (-INFINITY)
#define TAKE(result, value) result = (value > result) | (value != value) ? value : result
#else
#define NOTHING 0.0f
#define TAKE(result, value) result += value
#endif

/* Every `stride`-th float of a row of `width`, from `at` on; lanes outside of the row hold NOTHING. */
static vec strided(__global const float *row, long at, long stride, long width)
{
    if (at >= 0 && stride == 1 && at + V <= width)
        return vec_load(row + at);
    if (at >= 0 && stride == 2 && at + 2 * V <= width) {
        vec low = vec_load(row + at), high = vec_load(row + at + V);
        return (vec)(low.even, high.even);
    }
    float lanes[V];
    for (int i = 0; i < V; ++i) {
        long w = at + i * stride;
        lanes[i] = w >= 0 && w < width ? row[w] : NOTHING;
    }
    return vec_load(lanes);
}

__kernel void pooling_row(SOURCE(src), TARGET(dst), long rows, long depth, long height, long width,
                          long out_depth, long out_height, long out_width, long kernel_d, long kernel_h, long kernel_w,
                          long stride_d, long stride_h, long stride_w, long step_d, long step_h, long step_w,
                          long pad_d, long pad_h, long pad_w)
{
    long item = ITEM, blocks = (out_width + V - 1) / V;
    long row = item / blocks, ow = item % blocks * V;
    if (row >= rows)
        return;
    long oh = row % out_height, rest = row / out_height;
    long od = rest % out_depth, plane = rest / out_depth;
    __global const float *from = source_at(src) + plane * depth * height * width;
    long d0 = od * stride_d - pad_d, h0 = oh * stride_h - pad_h, w0 = ow * stride_w - pad_w;
    long taps = 0;
    vec result = NOTHING;
    for (long i = 0; i < kernel_d; ++i) {
        long d = d0 + i * step_d;
        if (d < 0 || d >= depth)
            continue;
        for (long j = 0; j < kernel_h; ++j) {
            long h = h0 + j * step_h;
            if (h < 0 || h >= height)
                continue;
            ++taps;
            for (long k = 0; k < kernel_w; ++k) {
                vec value = strided(from + (d * height + h) * width, w0 + k * step_w, stride_w, width);
                TAKE(result, value);
            }
        }
    }
#if !MAXIMUM
    float counts[V];
    for (int i = 0; i < V; ++i) {
#if INSIDE
        long inside = 0;
        for (long k = 0; k < kernel_w; ++k) {
            long w = w0 + i * stride_w + k * step_w;
            inside += w >= 0 && w < width;
        }
        counts[i] = (float)max(taps * inside, 1L);
#else
        counts[i] = (float)(kernel_d * kernel_h * kernel_w);
#endif
    }
    result /= vec_load(counts);
#endif
    store_lanes(result, target_at(dst) + row * out_width + ow, 0, out_width - ow);
}

/* Maximum (MAXIMUM) or average of windows in up to three spatial dimensions; the average is over the whole window or,
 * INSIDE, over its part inside the source. An item is one float of dst.
 */
__kernel void pooling(SOURCE(src), TARGET(dst), long count, long depth, long height, long width,
                      long out_depth, long out_height, long out_width, long kernel_d, long kernel_h, long kernel_w,
                      long stride_d, long stride_h, long stride_w, long step_d, long step_h, long step_w,
                      long pad_d, long pad_h, long pad_w)
{
    long item = ITEM;
    if (item >= count)
        return;
    long ow = item % out_width, rest = item / out_width;
    long oh = rest % out_height;
    rest /= out_height;
    long od = rest % out_depth, plane = rest / out_depth;
    __global const float *from = source_at(src) + plane * depth * height * width;
    long d0 = od * stride_d - pad_d, h0 = oh * stride_h - pad_h, w0 = ow * stride_w - pad_w;
    /* The taps inside: first <= tap < last in each dimension. */
    long first_d = d0 < 0 ? (-d0 + step_d - 1) / step_d : 0, last_d = min(kernel_d, (depth - d0 + step_d - 1) / step_d);
    long first_h = h0 < 0 ? (-h0 + step_h - 1) / step_h : 0, last_h = min(kernel_h, (height - h0 + step_h - 1) / step_h);
    long first_w = w0 < 0 ? (-w0 + step_w - 1) / step_w : 0, last_w = min(kernel_w, (width - w0 + step_w - 1) / step_w);
#if MAXIMUM
    float result = -INFINITY;
#else
    float result = 0.0f;
#endif
    for (long d = first_d; d < last_d; ++d)
        for (long h = first_h; h < last_h; ++h) {
            __global const float *row = from + ((d0 + d * step_d) * height + h0 + h * step_h) * width + w0;
            for (long w = first_w; w < last_w; ++w) {
                float value = row[w * step_w];
#if MAXIMUM
                result = value > result || value != value ? value : result;
#else
                result += value;
#endif
            }
        }
#if !MAXIMUM
#if INSIDE
    long taps = max(last_d - first_d, 0L) * max(last_h - first_h, 0L) * max(last_w - first_w, 0L);
#else
    long taps = kernel_d * kernel_h * kernel_w;
#endif
    result /= (float)max(taps, 1L);
#endif
    target_at(dst)[item] = result;
}

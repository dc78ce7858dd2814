/* Convolution over planes in which each tap is at a fixed distance, `taps[t]`, from the position computed.
 *
 * The source (as it is, or copied by `pad`) is (N, groups * ic) planes, `plane` floats apart. Positions are numbered
 * through whole planes, so that a vector crosses the ends of rows and small images fill it too; positions beyond the
 * output's width or height are computed and dropped. An item is ROWS output channels of V positions: each vector of the
 * source is used ROWS times, each weight V times.
 *
 * A block starts no later than `limit`; if that moves the last one back, the lanes done before are not stored again.
 * `out` is the size of a plane of dst. POINTWISE: there is one tap. BIAS: there is a bias.
 */
__kernel void convolution(SOURCE(src), SOURCE(weights), TARGET(dst), __global const int *taps_base, long taps_offset,
                          long items, long ic, long oc, long groups, long taps, long plane, long length, long limit,
                          long size_w, long size_h, long out_w, long out_h, long out
#if BIAS
                          , SOURCE(bias)
#endif
                          OTHER)
{
    long item = ITEM;
    if (item >= items)
        return;
    long blocks = (length + V - 1) / V, parts = (oc + ROWS - 1) / ROWS;
    long x = item % blocks * V, start = min(x, limit), rest = item / blocks;
    long channel = rest % parts * ROWS;
    rest /= parts;
    long group = rest % groups;
    int rows = (int)min(oc - channel, (long)ROWS);
    long first_channel = rest * oc + channel;

    __global const float *from = source_at(src) + rest * ic * plane + start;
    __global const float *w = source_at(weights) + (group * oc + channel) * ic * taps;
    __global const int *distances = (__global const int *)((__global const char *)taps_base + taps_offset);
    long row[ROWS];
    vec sums[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        row[r] = (r < rows ? r : rows - 1) * ic * taps;
#if BIAS
        sums[r] = source_at(bias)[group * oc + channel + (r < rows ? r : rows - 1)];
#else
        sums[r] = 0.0f;
#endif
    }
#if POINTWISE
    for (long c = 0; c < ic; ++c) {
        vec value = vec_load(from);
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
            sums[r] = mad((vec)w[row[r]], value, sums[r]);
        from += plane;
        ++w;
    }
#else
    for (long c = 0; c < ic; ++c) {
        for (long t = 0; t < taps; ++t) {
            vec value = vec_load(from + distances[t]);
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
                sums[r] = mad((vec)w[row[r]], value, sums[r]);
            ++w;
        }
        from += plane;
    }
#endif

    long ow = start % size_w, oh = start / size_w % size_h, od = start / size_w / size_h;
    bool dense = size_w == out_w && size_h == out_h;
    __global float *to = target_at(dst) + first_channel * out;
#if POST_BINARY
    __global const float *other = other_at() + first_channel * out;
#endif
    if (dense || (ow + V <= out_w && oh < out_h)) {
        long at = dense ? start : (od * out_h + oh) * out_w + ow;
        for (int r = 0; r < rows; ++r)
            finish(sums[r], to + r * out,
#if POST_BINARY
                   other + r * out,
#else
                   0,
#endif
                   at, x - start, dense ? min(length - start, (long)V) : V);
        return;
    }
    long places[V];
    for (int i = 0; i < V; ++i) {
        bool kept = start + i >= x && start + i < length && ow < out_w && oh < out_h;
        places[i] = kept ? (od * out_h + oh) * out_w + ow : -1;
        if (++ow == size_w) {
            ow = 0;
            if (++oh == size_h) {
                oh = 0;
                ++od;
            }
        }
    }
    for (int r = 0; r < rows; ++r) {
        float lanes[V];
#if POST_BINARY
        for (int i = 0; i < V; ++i)
            lanes[i] = places[i] < 0 ? 0.0f : other[r * out + places[i]];
        vec operand = vec_load(lanes);
#endif
        vec value = sums[r];
        POST_OPS(value, operand);
        vec_store(value, lanes);
        for (int i = 0; i < V; ++i)
            if (places[i] >= 0)
                to[r * out + places[i]] = lanes[i];
    }
}

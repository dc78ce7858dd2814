/* dst = src / (k + alpha * sum of squares) ** beta; the sum runs over channels c - before .. c + after, cut at the ends.
 * An item is a vector of the `inner` floats of one channel.
 */
__kernel void lrn(SOURCE(src), TARGET(dst), long rows, long channels, long inner, long before, long after,
                  float alpha, float beta, float k)
{
    long item = ITEM, blocks = (inner + V - 1) / V;
    long row = item / blocks, x = item % blocks * V;
    if (row >= rows)
        return;
    long channel = row % channels, at = row * inner + x;
    __global const float *here = source_at(src) + at;
    vec squares = 0.0f;
    for (long c = max(channel - before, 0L); c <= min(channel + after, channels - 1); ++c) {
        vec value = load_lanes(here + (c - channel) * inner, inner - x);
        squares += value * value;
    }
    /* The base is positive, so its power needs none of the cases that make pow slow. */
    vec value = load_lanes(here, inner - x) * exp(-beta * log(k + alpha * squares));
    store_lanes(value, target_at(dst) + at, 0, inner - x);
}

/* dst = (src - mean) / sqrt(variance + epsilon) * scale + shift, one of each for a channel; a row is one channel's floats. */
__kernel void batch_normalization(SOURCE(src), SOURCE(mean), SOURCE(variance), SOURCE(scale), SOURCE(shift), TARGET(dst),
                                  long rows, long channels, long inner, float epsilon OTHER)
{
    long item = ITEM, blocks = (inner + V - 1) / V;
    long row = item / blocks, x = item % blocks * V;
    if (row >= rows)
        return;
    long channel = row % channels, at = row * inner + x;
    float factor = source_at(scale)[channel] / sqrt(source_at(variance)[channel] + epsilon);
    vec value = (load_lanes(source_at(src) + at, inner - x) - source_at(mean)[channel]) * factor
              + source_at(shift)[channel];
    finish(value, target_at(dst), other_at(), at, 0, inner - x);
}

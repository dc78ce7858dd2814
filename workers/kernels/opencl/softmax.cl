/* Softmax (LOG: its logarithm) of `axis` floats `inner` apart, the largest subtracted first.
 *
 * Where inner is 1 an item is a whole row, computed in vectors along it; else an item is V neighbouring rows.
 */
/* Exponentials are summed in blocks, so that the rounding of a long sum does not grow with its length. */
#define BLOCK 64L
#if LOG
#define RESULT(shifted, sum) ((shifted) - log(sum))
#else
#define RESULT(shifted, sum) (exp(shifted) / (sum))
#endif

static void along(__global const float *src, __global float *dst, long axis)
{
    long whole = axis / V * V;
    vec most = -INFINITY;
    for (long i = 0; i < whole; i += V)
        most = fmax(most, vec_load(src + i));
    float largest = max_lanes(most);
    for (long i = whole; i < axis; ++i)
        largest = fmax(largest, src[i]);
    vec sums = 0.0f;
    for (long start = 0; start < whole; start += BLOCK * V) {
        vec partial = 0.0f;
        for (long i = start; i < min(start + BLOCK * V, whole); i += V)
            partial += exp(vec_load(src + i) - largest);
        sums += partial;
    }
    float sum = sum_lanes(sums);
    for (long i = whole; i < axis; ++i)
        sum += exp(src[i] - largest);
    for (long i = 0; i < whole; i += V)
        vec_store(RESULT(vec_load(src + i) - largest, (vec)sum), dst + i);
    for (long i = whole; i < axis; ++i)
        dst[i] = RESULT(src[i] - largest, sum);
}

static void across(__global const float *src, __global float *dst, long axis, long inner, long count)
{
    vec largest = -INFINITY, sum = 0.0f;
    for (long i = 0; i < axis; ++i)
        largest = fmax(largest, load_lanes(src + i * inner, count));
    for (long start = 0; start < axis; start += BLOCK) {
        vec partial = 0.0f;
        for (long i = start; i < min(start + BLOCK, axis); ++i)
            partial += exp(load_lanes(src + i * inner, count) - largest);
        sum += partial;
    }
    for (long i = 0; i < axis; ++i)
        store_lanes(RESULT(load_lanes(src + i * inner, count) - largest, sum), dst + i * inner, 0, count);
}

__kernel void softmax(SOURCE(src), TARGET(dst), long outer, long axis, long inner)
{
    long item = ITEM, blocks = (inner + V - 1) / V;
    long row = item / blocks, x = item % blocks * V;
    if (row >= outer)
        return;
    long at = row * axis * inner + x;
    if (inner == 1)
        along(source_at(src) + at, target_at(dst) + at, axis);
    else
        across(source_at(src) + at, target_at(dst) + at, axis, inner, inner - x);
}

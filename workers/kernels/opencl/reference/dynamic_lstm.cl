/* Run LSTM cells whose states are quantised before they are multiplied; an item is all.
 *
 * States are kept in the scratchpad: h, its bytes less their zero point, and c, of all sequences each. The range of h is that of
 * its numbers rounded to float, as in `dynamic_quantise`.
 */
static real of_two(tensor t, long row, long column)
{
    return load(type_of(t), base_of(t) + at(t, 0, row) + at(t, 1, column));
}

/* Write the bytes of a state less their zero point, and return their scale. */
static float quantise_state(__global const real *h, __global real *less, long count)
{
    float least = 0, most = 0;
    int is_number = 1;
    for (long number = 0; number < count; ++number) {
        float value = (float)h[number];
        is_number &= value == value;
        if (value < least)
            least = value;
        if (value > most)
            most = value;
    }
    if (!is_number)
        least = most = 0;
    float step = step_of(least, most), point = point_of(least, step);
    for (long number = 0; number < count; ++number)
        less[number] = byte_of((float)h[number], step, point) - point;
    return step;
}

__kernel void dynamic_lstm(PRIMITIVE, long src, long src_iter, long src_iter_c, long weights, long scales, long points, long dst,
                           long dst_iter_c, long backwards, MEMORY(scratch) OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src), by = tensor_at(weights), factors = tensor_at(scales), zeros = tensor_at(points);
    tensor to = tensor_at(dst), last = tensor_at(dst_iter_c);
    long steps = size_of(from, 0), hidden = size_of(from, 3), count = size_of(from, 1) * hidden;
    __global real *h = (__global real *)(scratch_base + scratch_offset), *less = h + count, *c = less + count;
    for (long place = 0; place < count; ++place) {
        h[place] = src_iter ? of_two(tensor_at(src_iter), place / hidden, place % hidden) : 0;
        c[place] = src_iter ? of_two(tensor_at(src_iter_c), place / hidden, place % hidden) : 0;
    }
    for (long number = 0; number < steps; ++number) {
        long step = backwards ? steps - 1 - number : number;
        real scale = quantise_state(h, less, count);
        for (long place = 0; place < count; ++place) {
            long n = place / hidden, k = place % hidden;
            real gates[4];
            for (long gate = 0; gate < 4; ++gate) {
                real point = points ? of_two(zeros, gate, k) : 0, sum = 0;
                for (long j = 0; j < hidden; ++j) {
                    __global const char *weight = base_of(by) + at(by, 0, j) + at(by, 1, gate) + at(by, 2, k);
                    sum += (load(type_of(by), weight) - point) * less[n * hidden + j];
                }
                __global const char *added = base_of(from) + at(from, 0, step) + at(from, 1, n) + at(from, 2, gate);
                gates[gate] = load(type_of(from), added + at(from, 3, k)) + sum * scale * of_two(factors, gate, k);
            }
            c[place] = logistic(gates[1]) * c[place] + logistic(gates[0]) * tanh(gates[2]);
            h[place] = logistic(gates[3]) * tanh(c[place]);
            store(h[place], type_of(to), base_of(to) + at(to, 0, step) + at(to, 1, n) + at(to, 2, k));
        }
    }
    for (long place = 0; place < count; ++place)
        store(c[place], type_of(last), base_of(last) + at(last, 0, place / hidden) + at(last, 1, place % hidden));
}

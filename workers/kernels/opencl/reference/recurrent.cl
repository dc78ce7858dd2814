/* Run recurrent cells over all steps, layers and directions of a sequence. An item is a sequence.
 *
 * States are kept in the scratchpad, where a sequence has `part` bytes: the results of the layer of each direction, the
 * states h and c, the reset state of a GRU, the gates, and the input of a step.
 */
typedef struct {
    tensor inputs, states, bias, peephole;
    long has_bias, has_peephole;
    int cell, gate, candidate, result;
    real gate_alpha, gate_beta, alpha, beta, result_alpha, result_beta, clip;
} network;

typedef struct {
    __global real *h, *c, *reset, *gates, *x;
} memory;

static real bias_of(const network *n, long layer, long direction, long gate, long k)
{
    tensor b = n->bias;
    if (!n->has_bias)
        return 0;
    return load(type_of(b), base_of(b) + at(b, 0, layer) + at(b, 1, direction) + at(b, 2, gate) + at(b, 3, k));
}

/* The product of a vector and a column of (L, D, inputs, G, H) weights. */
static real product(tensor weights, long layer, long direction, long gate, long k, __global const real *x)
{
    long start = at(weights, 0, layer) + at(weights, 1, direction) + at(weights, 3, gate) + at(weights, 4, k);
    real sum = 0;
    for (long i = 0; i < size_of(weights, 2); ++i)
        sum += load(type_of(weights), base_of(weights) + start + at(weights, 2, i)) * x[i];
    return sum;
}

/* Return a number between -clip and clip unless that is 0. NaN remains. */
static real limited(const network *n, real value)
{
    return n->clip > 0 && fabs(value) > n->clip ? copysign(n->clip, value) : value;
}

/* What a gate of an LSTM sees of c: i (0), f (1) and o (2). */
static real seen(const network *n, long layer, long direction, long gate, long k, real c)
{
    tensor p = n->peephole;
    if (!n->has_peephole)
        return 0;
    return c * load(type_of(p), base_of(p) + at(p, 0, layer) + at(p, 1, direction) + at(p, 2, gate) + at(p, 3, k));
}

/* Advance the states h and c by one step. */
static void advance(const network *n, memory m, long layer, long direction)
{
    long hidden = size_of(n->inputs, 4), count = size_of(n->inputs, 3);
    int gru = n->cell == CELL_GRU || n->cell == CELL_LBR_GRU;
    __global real *second = m.gates + hidden, *third = second + hidden, *fourth = third + hidden;
    for (long gate = 0; gate < count; ++gate) {
        int last = gru && gate == 2;
        for (long k = 0; k < hidden; ++k) {
            real value = bias_of(n, layer, direction, gate, k) + product(n->inputs, layer, direction, gate, k, m.x);
            real old = product(n->states, layer, direction, gate, k, last && n->cell == CELL_GRU ? m.reset : m.h);
            if (last && n->cell == CELL_LBR_GRU)
                old = second[k] * (old + bias_of(n, layer, direction, 3, k));
            value += old;
            if (gate < 2)
                value += seen(n, layer, direction, gate, k, m.c[k]);
            /* The output gate of an LSTM sees c after the step. */
            if (gate == 3) {
                m.gates[gate * hidden + k] = value;
                continue;
            }
            value = limited(n, value);
            value = n->cell == CELL_RNN || gate == 2 ? eltwise_value(n->candidate, value, n->alpha, n->beta)
                                                     : eltwise_value(n->gate, value, n->gate_alpha, n->gate_beta);
            m.gates[gate * hidden + k] = value;
        }
        for (long k = 0; gru && gate == 1 && k < hidden; ++k)
            m.reset[k] = second[k] * m.h[k];
    }
    for (long k = 0; k < hidden; ++k) {
        real first = m.gates[k];
        if (n->cell == CELL_LSTM) {
            m.c[k] = second[k] * m.c[k] + first * third[k];
            first = limited(n, fourth[k] + seen(n, layer, direction, 2, k, m.c[k]));
            first = eltwise_value(n->gate, first, n->gate_alpha, n->gate_beta)
                    * eltwise_value(n->result, m.c[k], n->result_alpha, n->result_beta);
        } else if (gru)
            first = first * m.h[k] + (1 - first) * third[k];
        m.h[k] = first;
    }
}

/* Where a state (L, D, N, H) of a sequence is kept. */
static __global char *state_at(tensor state, long layer, long direction, long item, long k)
{
    return base_of(state) + at(state, 0, layer) + at(state, 1, direction) + at(state, 2, item) + at(state, 3, k);
}

/* Read the first state of a sequence, zeros if there is none. */
static void begin_state(__global real *to, long hidden, tensor state, long has_state, long layer, long direction,
                        long item)
{
    for (long k = 0; k < hidden; ++k)
        to[k] = has_state ? load(type_of(state), state_at(state, layer, direction, item, k)) : 0;
}

/* Write the last state of a sequence if it is wanted. */
static void end_state(__global const real *from, long hidden, tensor state, long has_state, long layer, long direction,
                      long item)
{
    for (long k = 0; has_state && k < hidden; ++k)
        store(from[k], type_of(state), state_at(state, layer, direction, item, k));
}

__kernel void recurrent(PRIMITIVE, long src_layer, long src_iter, long src_iter_c, long weights_layer,
                        long weights_iter, long peephole, long bias, long dst_layer, long dst_iter, long dst_iter_c,
                        long cell, long gate, long candidate, long result, long backwards, long concat,
                        MEMORY(scratch), long part, FRACTION(gate_alpha), FRACTION(gate_beta), FRACTION(alpha),
                        FRACTION(beta), FRACTION(result_alpha), FRACTION(result_beta), FRACTION(clip) OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src_layer), to = tensor_at(dst_layer), weights = tensor_at(weights_layer);
    network n = {weights, tensor_at(weights_iter), tensor_at(bias), tensor_at(peephole), bias, peephole,
                 (int)cell, (int)gate, (int)candidate, (int)result, fraction(gate_alpha), fraction(gate_beta),
                 fraction(alpha), fraction(beta), fraction(result_alpha), fraction(result_beta), fraction(clip)};
    long layers = size_of(weights, 0), directions = size_of(weights, 1), channels = size_of(weights, 2);
    long hidden = size_of(weights, 4), steps = size_of(from, 0);
    __global real *results = (__global real *)(scratch_base + scratch_offset + item * part);
    __global real *h = results + directions * steps * hidden;
    memory m = {h, h + hidden, h + 2 * hidden, h + 3 * hidden, h + 7 * hidden};
    for (long direction = 0; direction < directions; ++direction)
        for (long layer = 0; layer < layers; ++layer) {
            __global real *mine = results + direction * steps * hidden;
            begin_state(m.h, hidden, tensor_at(src_iter), src_iter, layer, direction, item);
            begin_state(m.c, hidden, tensor_at(src_iter_c), src_iter_c, layer, direction, item);
            for (long count = 0; count < steps; ++count) {
                long step = backwards + direction == 0 ? count : steps - 1 - count;
                __global const char *source = base_of(from) + at(from, 0, step) + at(from, 1, item);
                for (long k = 0; k < channels; ++k)
                    m.x[k] = layer ? mine[step * hidden + k] : load(type_of(from), source + at(from, 2, k));
                advance(&n, m, layer, direction);
                for (long k = 0; k < hidden; ++k)
                    mine[step * hidden + k] = m.h[k];
            }
            end_state(m.h, hidden, tensor_at(dst_iter), dst_iter, layer, direction, item);
            end_state(m.c, hidden, tensor_at(dst_iter_c), dst_iter_c, layer, direction, item);
        }
    for (long step = 0; step < steps; ++step)
        for (long k = 0; k < size_of(to, 2); ++k) {
            real sum = 0;
            for (long d = concat ? k / hidden : 0; d < (concat ? k / hidden + 1 : directions); ++d)
                sum += results[(d * steps + step) * hidden + (concat ? k % hidden : k)];
            store(sum, type_of(to), base_of(to) + at(to, 0, step) + at(to, 1, item) + at(to, 2, k));
        }
}

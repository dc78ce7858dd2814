/* Advance recurrent cells by one step: gates from W x + b (N, G, apart) and U h (N, wide), and the states (N, H) from them.
 *
 * CELL: 0 vanilla, 1 LSTM, 2 GRU with linear before reset, 3 and 4 the halves of a GRU, between which r * h is multiplied.
 * GATE, CANDIDATE and RESULT are the functions of gates, of what is proposed, and of c in h, if they are not the usual ones.
 * Functions are computed of numbers between -CLIP and CLIP if that is defined. With PEEPHOLES, the sums of an LSTM's gates i, f and
 * o get factors (3, H) of c.
 * Without an h before (BEGUN 0) it is 0, and U h is not read. The first half leaves the sum of the update gate in place of its W x,
 * and writes r * h in place of c after. An item is a vector of channels of a sequence.
 */
#ifdef CLIP
#define limited(x) select(clamp(x, -CLIP, CLIP), x, isnan(x))
#else
#define limited(x) (x)
#endif
#define summed(x, u) (load_lanes(x, lanes) + (begun ? load_lanes(u, lanes) : (vec)0.0f))
#define added(x, u) limited(summed(x, u))
#ifdef GATE
#define gate(x) GATE(x, GATE_ALPHA, GATE_BETA)
#else
#define gate(x) eltwise_logistic(x, 0.0f, 0.0f)
#endif
#ifdef CANDIDATE
#define candidate_of(x) CANDIDATE(x, CANDIDATE_ALPHA, CANDIDATE_BETA)
#else
#define candidate_of(x) tanh(x)
#endif
#ifdef RESULT
#define result_of(x) RESULT(x, RESULT_ALPHA, RESULT_BETA)
#else
#define result_of(x) tanh(x)
#endif
#ifdef PEEPHOLES
#define seen(number, c) (load_lanes(source_at(peepholes) + number * hidden + first, lanes) * (c))
#else
#define seen(number, c) 0.0f
#endif
#define opened(x, u, number, c) gate(limited(summed(x, u) + seen(number, c)))

__kernel void recurrent_cell(TARGET(inputs), SOURCE(products), SOURCE(before), TARGET(after), SOURCE(kept),
                             TARGET(keeps), SOURCE(bias), SOURCE(peepholes), long count, long hidden, long gates,
                             long apart, long wide, long begun, long remembers, long biased)
{
    long item = ITEM, vectors = (hidden + V - 1) / V;
    if (item >= count)
        return;
    long n = item / vectors, first = item % vectors * V, lanes = min(hidden - first, (long)V);
    __global float *x = target_at(inputs) + n * gates * apart + first;
    __global const float *u = source_at(products) + n * wide + first;
    long at = n * hidden + first;
    vec h = begun ? load_lanes(source_at(before) + at, lanes) : (vec)0.0f;
#if CELL == 0
    store_lanes(ACTIVATION(added(x, u), ALPHA, 0.0f), target_at(after) + at, 0, lanes);
#elif CELL == 1
    vec past = remembers ? load_lanes(source_at(kept) + at, lanes) : (vec)0.0f;
    vec c = opened(x, u, 0, past) * candidate_of(added(x + 2 * apart, u + 2 * apart));
    if (remembers)
        c += opened(x + apart, u + apart, 1, past) * past;
    store_lanes(c, target_at(keeps) + at, 0, lanes);
    store_lanes(opened(x + 3 * apart, u + 3 * apart, 2, c) * result_of(c), target_at(after) + at, 0, lanes);
#elif CELL == 3
    store_lanes(added(x, u), x, 0, lanes);
    if (begun)
        store_lanes(gate(added(x + apart, u + apart)) * h, target_at(keeps) + at, 0, lanes);
#else
#if CELL == 4
    vec update = load_lanes(x, lanes);
    vec candidate = added(x + 2 * apart, u);
#else
    vec update = added(x, u), reset = gate(added(x + apart, u + apart));
    vec inner = biased ? load_lanes(source_at(bias) + first, lanes) : (vec)0.0f;
    if (begun)
        inner += load_lanes(u + 2 * apart, lanes);
    vec candidate = limited(load_lanes(x + 2 * apart, lanes) + reset * inner);
#endif
#ifdef GATE
    vec share = gate(update);
    store_lanes(share * h + (1.0f - share) * candidate_of(candidate), target_at(after) + at, 0, lanes);
#else
    /* Not 1 - u, which is inexact if it is small. */
    store_lanes(gate(update) * h + gate(-update) * candidate_of(candidate), target_at(after) + at, 0, lanes);
#endif
#endif
}

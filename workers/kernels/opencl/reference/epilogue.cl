/* The attributes of every operation: elements with scale and zero point, and results stored after a chain.
 *
 * kernels/native/reference/epilogue.py defines chains. Defined before this text: a STEP_ macro for each
 * kind.
 */
static int has_scales(tensor t) { return t.record[3] != 0; }
static real scale_of(tensor t, long number) { return has_scales(t) ? element(beside(t, t.record[3]), number) : 1; }
static real zero_point_of(tensor t, long number) { return t.record[4] ? element(beside(t, t.record[4]), number) : 0; }

/* The value of a stored element: (stored - zero point) * scale. */
static real quantised(tensor t, long number, real stored)
{
    return (stored - zero_point_of(t, number)) * scale_of(t, number);
}

static real fetch(tensor t, long number) { return quantised(t, number, element(t, number)); }

/* Store an element of dst: the chain of x, divided by the scale, plus the zero point. */
static void finish(real x, tensor dst, __global const long *chain, long number)
{
    __global char *place = base_of(dst) + where(dst, number);
    __global const long *step = chain + 1;
    for (long i = 0; i < chain[0]; ++i, step += 5) {
        int algorithm = (int)step[1];
        real alpha = fraction_of(step[2]), beta = fraction_of(step[3]);
        if (step[0] == STEP_ELTWISE)
            x = eltwise_value(algorithm, x, alpha, beta);
        else if (step[0] == STEP_BINARY)
            x = binary_value(algorithm, x, element(make_tensor(dst.memories, chain + step[4] / 8), number));
        else
            x += alpha * (load(algorithm, place) - beta);
    }
    if (has_scales(dst))
        x /= scale_of(dst, number);
    /* A sum with 0 would take the sign of a zero. */
    if (dst.record[4])
        x += zero_point_of(dst, number);
    store(x, type_of(dst), place);
}

/* Whether two tensors are of one integer type, without scales and zero points. */
static int are_whole(tensor t, tensor other)
{
    long attributes = t.record[3] | t.record[4] | other.record[3] | other.record[4];
    return attributes == 0 && type_of(t) == type_of(other) && is_whole(type_of(t));
}
/* Whether the arithmetic of that type also wraps. */
static int wraps_as(tensor t, tensor other) { return are_whole(t, other) && wraps(type_of(t)); }
static long integer(tensor t, long number) { return read_whole(type_of(t), base_of(t) + where(t, number)); }
static void put_integer(long x, tensor t, long number) { write_whole(x, type_of(t), base_of(t) + where(t, number)); }

/* An update combined with the value before it, by the number of the reduction; NaN stays NaN. */
static real scattered(long reduction, real value, real update)
{
    switch (reduction) {
    case 0: return update;
    case 1: return value + update;
    case 2: return value * update;
    case 3: return value < update || value != value ? value : update;
    }
    return value > update || value != value ? value : update;
}
/* The same of integers of a type, whose sums and products wrap. */
static long scattered_integer(long reduction, long value, long update, int type)
{
    switch (reduction) {
    case 0: return update;
    case 1: return (long)((ulong)value + (ulong)update);
    case 2: return (long)((ulong)value * (ulong)update);
    }
    return is_less(update, value, type) == (reduction == 3) ? update : value;
}

/* Store element `item` of dst: element `number` of a tensor, or 0 if that is not `inside`. With `plain` there are no
 * attributes, and elements of one type are copied bit for bit; integers become others, which lose high bits if it is 2.
 */
static void copy_element(tensor from, tensor to, __global const long *chain, long plain, long item, long number, int is_inside)
{
    if (plain && type_of(from) == type_of(to) && is_inside)
        move_bits(type_of(from), base_of(from) + where(from, number), base_of(to) + where(to, item));
    else if (plain && is_whole(type_of(from)) && is_whole(type_of(to)) && is_inside)
        put_integer(plain == 2 ? integer(from, number) : inside(integer(from, number), type_of(from), type_of(to)), to, item);
    else
        finish(is_inside ? fetch(from, number) : 0, to, chain, item);
}

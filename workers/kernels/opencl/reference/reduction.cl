/* Reduce src along every dimension that is smaller in dst. An item is an element of dst, made of `count` of src. */
static long source_of(tensor from, tensor to, long item, long number)
{
    long found = 0, step = 1;
    for (int d = rank_of(from) - 1; d >= 0; --d) {
        long size = size_of(from, d);
        if (size_of(to, d) == size) {
            found += item % size * step;
            item /= size;
        } else {
            found += number % size * step;
            number /= size;
        }
        step *= size;
    }
    return found;
}

static real accumulated(int algorithm, real value, real x, real p)
{
    switch (algorithm) {
    case REDUCTION_MAX: return value != value ? value : at_least(x, value);
    case REDUCTION_MIN: return value != value ? value : at_most(x, value);
    case REDUCTION_MUL: return value * x;
    case REDUCTION_SUM:
    case REDUCTION_MEAN: return value + x;
    }
    return value + pow(fabs(x), p);
}

static long whole_accumulated(long algorithm, long value, long x, int type)
{
    if (algorithm == REDUCTION_SUM)
        return (long)((ulong)value + (ulong)x);
    if (algorithm == REDUCTION_MUL)
        return (long)((ulong)value * (ulong)x);
    return is_less(x, value, type) == (algorithm == REDUCTION_MIN) ? x : value;
}

static real reduced(int algorithm, real value, long count, real p, real eps)
{
    switch (algorithm) {
    case REDUCTION_MEAN: return value / count;
    case REDUCTION_NORM_LP_MAX: return pow(at_least(value, eps), 1 / p);
    case REDUCTION_NORM_LP_SUM: return pow(value + eps, 1 / p);
    case REDUCTION_NORM_LP_POWER_P_MAX: return at_least(value, eps);
    case REDUCTION_NORM_LP_POWER_P_SUM: return value + eps;
    }
    return value;
}

__kernel void reduction(PRIMITIVE, long src, long dst, long chain, long algorithm, long count,
                        FRACTION(p), FRACTION(eps) OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src), to = tensor_at(dst);
    if (algorithm <= REDUCTION_MUL && count > 0 && *table_at(chain) == 0 && wraps_as(from, to)) {
        long found = integer(from, source_of(from, to, item, 0));
        for (long number = 1; number < count; ++number)
            found = whole_accumulated(algorithm, found, integer(from, source_of(from, to, item, number)), type_of(from));
        put_integer(found, to, item);
        return;
    }
    real value = algorithm == REDUCTION_MUL;
    if (algorithm == REDUCTION_MAX || algorithm == REDUCTION_MIN)
        value = algorithm == REDUCTION_MAX ? -INFINITY : INFINITY;
    for (long number = 0; number < count; ++number)
        value = accumulated((int)algorithm, value, fetch(from, source_of(from, to, item, number)), fraction(p));
    finish(reduced((int)algorithm, value, count, fraction(p), fraction(eps)), to, table_at(chain), item);
}

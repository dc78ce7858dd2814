/* dst = f(src0, src1). An item is an element. */
static int has_whole(long algorithm)
{
    return (algorithm <= BINARY_MIN && algorithm != BINARY_DIV) || (algorithm >= BINARY_GE && algorithm <= BINARY_NE);
}

static int divides(long algorithm)
{
    return algorithm == BINARY_DIV || (algorithm > BINARY_XOR && algorithm < BINARY_POW);
}

static long whole_binary(long algorithm, long x, long y, int type)
{
    switch (algorithm) {
    case BINARY_ADD: return (long)((ulong)x + (ulong)y);
    case BINARY_SUB: return (long)((ulong)x - (ulong)y);
    case BINARY_MUL: return (long)((ulong)x * (ulong)y);
    case BINARY_MAX: return is_less(y, x, type) ? x : y;
    case BINARY_MIN: return is_less(x, y, type) ? x : y;
    case BINARY_GE: return !is_less(x, y, type);
    case BINARY_GT: return is_less(y, x, type);
    case BINARY_LE: return !is_less(y, x, type);
    case BINARY_LT: return is_less(x, y, type);
    case BINARY_EQ: return x == y;
    }
    return x != y;
}

/* The low bits of a power; a negative exponent gives 0 unless x is 1 or -1. */
static long whole_power(ulong x, ulong y, int negative)
{
    if (negative && x != 1 && x != (ulong)-1)
        return 0;
    ulong found = 1;
    for (ulong rest = negative ? y & 1 : y; rest != 0; rest >>= 1, x *= x)
        found *= rest & 1 ? x : 1;
    return (long)found;
}

/* A function of bits, of which only the low ones count; a number of places that is negative counts as a large one. */
static long bitwise(long algorithm, long x, long y, int type)
{
    int is_signed = type == TYPE_S64 || type == TYPE_S32 || type == TYPE_S16 || type == TYPE_S8;
    int bytes = type == TYPE_S64 || type == TYPE_U64 ? 8 : type == TYPE_S32 || type == TYPE_U32 ? 4 :
                type == TYPE_S16 || type == TYPE_U16 ? 2 : 1;
    int large = y < 0 || y >= 8 * bytes;
    switch (algorithm) {
    case BINARY_BIT_AND: return x & y;
    case BINARY_BIT_OR: return x | y;
    case BINARY_BIT_XOR: return x ^ y;
    case BINARY_SHIFT_LEFT: return large ? 0 : x << y;
    case BINARY_WRAP_ADD: return (long)((ulong)x + (ulong)y);
    case BINARY_WRAP_SUB: return (long)((ulong)x - (ulong)y);
    case BINARY_WRAP_MUL: return (long)((ulong)x * (ulong)y);
    case BINARY_WRAP_ABS_DIFF:
        return is_signed ? (long)abs_diff(x, y) : (long)abs_diff((ulong)x, (ulong)y);
    case BINARY_WRAP_POW: return whole_power((ulong)x, (ulong)y, is_signed && y < 0);
    }
    if (large)
        return is_signed && x < 0 ? -1 : 0;
    return is_signed ? x >> y : (long)((ulong)x >> y);
}

__kernel void binary(PRIMITIVE, long src0, long src1, long dst, long chain, long algorithm OPERANDS)
{
    BEGIN(item);
    tensor left = tensor_at(src0), right = tensor_at(src1), to = tensor_at(dst);
    if (algorithm >= BINARY_BIT_AND) {
        put_integer(bitwise(algorithm, integer(left, item), integer(right, item), type_of(left)), to, item);
        return;
    }
    if (has_whole(algorithm) && wraps_as(left, right)) {
        long found = whole_binary(algorithm, integer(left, item), integer(right, item), type_of(left));
        if (algorithm >= BINARY_GE) {
            finish(found, to, table_at(chain), item);
            return;
        }
        if (wraps_as(left, to) && *table_at(chain) == 0) {
            put_integer(found, to, item);
            return;
        }
    }
    real x = fetch(left, item), y = fetch(right, item);
    /* Integers divided by 0 give 0. */
    int is_zero = y == 0 && divides(algorithm) && is_whole(type_of(left)) && is_whole(type_of(right));
    finish(is_zero ? 0 : binary_value((int)algorithm, x, y), to, table_at(chain), item);
}

/* Shared by the reference kernels: tensors of any data type and layout, described by records in the tables.
 *
 * kernels/native/reference/tensor.py defines records; kernels take their places in the tables, 0 if there
 * is no such tensor. An element is named by its number in row-major order, or by an index for each dimension.
 *
 * Defined before this text: FP64 (whether to compute in double), a TYPE_ macro for each data type, and of the operands,
 * which are the last parameters of a kernel, OPERANDS (with a comma in front) and OPERAND_LIST.
 */
#if FP64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double real;
#else
typedef float real;
#endif

/* A buffer comes with an offset in bytes: sub-buffers would have to be aligned as the device likes. */
#define MEMORY(name) __global char *name##_base, long name##_offset

/* The first parameters of every kernel, and how its body begins: items beyond the last have nothing to do. */
#define PRIMITIVE long items, MEMORY(tables)
#define BEGIN(item)                                                                                              \
    long item = (long)get_global_id(1) * (long)get_global_size(0) + (long)get_global_id(0);                     \
    __global char *const memories[] = {OPERAND_LIST};                                                            \
    if (item >= items)                                                                                           \
        return;

/* A number that is no whole one comes as the bits of a double. */
#define FRACTION(name) long name##_bits
#define fraction(name) fraction_of(name##_bits)

#define table_at(place) ((__global const long *)(tables_base + tables_offset + (place)))
#define tensor_at(place) make_tensor(memories, table_at(place))

typedef struct {
    __global char *const *memories;
    __global const long *record;
} tensor;

static tensor make_tensor(__global char *const *memories, __global const long *record)
{
    tensor t = {memories, record};
    return t;
}

static tensor beside(tensor t, long bytes) { return make_tensor(t.memories, t.record + bytes / 8); }
static int type_of(tensor t) { return (int)t.record[0]; }
static int rank_of(tensor t) { return (int)t.record[1]; }
static long size_of(tensor t, int dim) { return t.record[5 + 5 * dim]; }
static long padded_size_of(tensor t, int dim) { return t.record[6 + 5 * dim]; }
static __global char *base_of(tensor t) { return t.memories[t.record[2]]; }

/* The part of one dimension's index in an element's place, in bytes. */
static long at(tensor t, int dim, long index)
{
    __global const long *d = t.record + 5 + 5 * dim, *block = t.record + d[4] / 8;
    long place = 0;
    for (long i = 0; i < d[3]; ++i, block += 2) {
        place += index % block[0] * block[1];
        index /= block[0];
    }
    return place + index * d[2];
}

/* The place of an element by its number, in bytes. */
static long where(tensor t, long number)
{
    long place = 0;
    for (int d = rank_of(t) - 1; d >= 0; --d) {
        place += at(t, d, number % size_of(t, d));
        number /= size_of(t, d);
    }
    return place;
}

/* The value of a double's bits, which a float holds exactly. */
static real fraction_of(long bits)
{
#if FP64
    return as_double(bits);
#else
    int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
    float size = exponent == 1024 ? INFINITY : ldexp((float)(bits >> 29 & 0x7fffff | 0x800000), exponent - 23);
    return exponent == -1023 ? 0 : bits < 0 ? -size : size;
#endif
}

static real load(int type, __global const char *p)
{
    switch (type) {
#if FP64
    case TYPE_F64: return *(__global const double *)p;
#endif
    case TYPE_F32: return *(__global const float *)p;
    case TYPE_F16: return vload_half(0, (__global const half *)p);
    case TYPE_BF16: return as_float((uint)*(__global const ushort *)p << 16);
    case TYPE_S64: return *(__global const long *)p;
    case TYPE_S32: return *(__global const int *)p;
    case TYPE_S8: return *(__global const char *)p;
    case TYPE_U8: return *(__global const uchar *)p;
    case TYPE_BOOL: return *p != 0;
    case TYPE_U64: return *(__global const ulong *)p;
    case TYPE_U32: return *(__global const uint *)p;
    case TYPE_S16: return *(__global const short *)p;
    case TYPE_U16: return *(__global const ushort *)p;
    }
    return 0;
}

/* x in a binary format of 16 bits with `digits` bits after the point, rounded once, to even. */
static ushort narrow(real x, int digits)
{
    int bias = (1 << (14 - digits)) - 1;
    uint sign = signbit(x) ? 0x8000 : 0, infinite = 0x7fff & (0x7fffu << digits);
    real size = fabs(x);
    if (x != x)
        return (ushort)(sign | infinite | (1u << (digits - 1)));
    if (size >= 3.4e38f)
        return (ushort)(sign | infinite);
    int exponent = size > 0 ? max(ilogb(size), 1 - bias) : 1 - bias;
    uint bits = (uint)rint(ldexp(size, digits - exponent)) + ((uint)(exponent + bias - 1) << digits);
    return (ushort)(sign | min(bits, infinite));
}

/* x as the nearest of low .. high, whole numbers, ties to even; `limit` is high + 1. NaN becomes `low`. */
static long whole(real x, long low, long high, real limit)
{
    real rounded = rint(x);
    /* No comparison with NaN is true. */
    return rounded >= limit ? high : rounded > (real)low ? (long)rounded : low;
}

static ulong whole_u64(real x)
{
    real rounded = rint(x);
    return rounded >= 18446744073709551616.0f ? ULONG_MAX : rounded > 0 ? (ulong)rounded : 0;
}

static void store(real x, int type, __global char *p)
{
    switch (type) {
#if FP64
    case TYPE_F64: *(__global double *)p = x; break;
#endif
    case TYPE_F32: *(__global float *)p = (float)x; break;
    case TYPE_F16: *(__global ushort *)p = narrow(x, 10); break;
    case TYPE_BF16: *(__global ushort *)p = narrow(x, 7); break;
    case TYPE_S64: *(__global long *)p = whole(x, LONG_MIN, LONG_MAX, 9223372036854775808.0f); break;
    case TYPE_S32: *(__global int *)p = (int)whole(x, INT_MIN, INT_MAX, 2147483648.0f); break;
    case TYPE_S8: *p = (char)whole(x, -128, 127, 128.0f); break;
    case TYPE_U8: *(__global uchar *)p = (uchar)whole(x, 0, 255, 256.0f); break;
    case TYPE_BOOL: *p = x != 0; break;
    case TYPE_U64: *(__global ulong *)p = whole_u64(x); break;
    case TYPE_U32: *(__global uint *)p = (uint)whole(x, 0, UINT_MAX, 4294967296.0f); break;
    case TYPE_S16: *(__global short *)p = (short)whole(x, SHRT_MIN, SHRT_MAX, 32768.0f); break;
    case TYPE_U16: *(__global ushort *)p = (ushort)whole(x, 0, USHRT_MAX, 65536.0f); break;
    }
}

/* Copy an element bit for bit. */
static void move_bits(int type, __global const char *source, __global char *target)
{
    switch (type) {
    case TYPE_F64:
    case TYPE_U64:
    case TYPE_S64: *(__global long *)target = *(__global const long *)source; break;
    case TYPE_F32:
    case TYPE_U32:
    case TYPE_S32: *(__global int *)target = *(__global const int *)source; break;
    case TYPE_F16:
    case TYPE_S16:
    case TYPE_U16:
    case TYPE_BF16: *(__global short *)target = *(__global const short *)source; break;
    default: *target = *source;
    }
}

/* Whether a type is an integer, and whether the sums, differences and products of one wrap. */
static int is_whole(int type) { return type >= TYPE_S64 && type != TYPE_BOOL; }
static int wraps(int type) { return type == TYPE_S64 || type >= TYPE_U64; }

/* An integer, and the low bits of one as an integer of a type; those of u64 are bits. */
static long read_whole(int type, __global const char *p)
{
    switch (type) {
    case TYPE_U64:
    case TYPE_S64: return *(__global const long *)p;
    case TYPE_S32: return *(__global const int *)p;
    case TYPE_U32: return *(__global const uint *)p;
    case TYPE_S16: return *(__global const short *)p;
    case TYPE_U16: return *(__global const ushort *)p;
    case TYPE_S8: return *p;
    }
    return *(__global const uchar *)p;
}

static void write_whole(long x, int type, __global char *p)
{
    switch (type) {
    case TYPE_U64:
    case TYPE_S64: *(__global long *)p = x; break;
    case TYPE_S32:
    case TYPE_U32: *(__global int *)p = (int)x; break;
    case TYPE_S16:
    case TYPE_U16: *(__global short *)p = (short)x; break;
    default: *p = (char)x;
    }
}

static int is_less(long x, long y, int type) { return type == TYPE_U64 ? (ulong)x < (ulong)y : x < y; }

/* An integer of one type as the nearest one of another type. */
static long inside(long x, int type, int other)
{
    long low = 0, high = LONG_MAX;
    switch (other) {
    case TYPE_S64: low = LONG_MIN; break;
    case TYPE_S32: low = INT_MIN; high = INT_MAX; break;
    case TYPE_S16: low = SHRT_MIN; high = SHRT_MAX; break;
    case TYPE_S8: low = CHAR_MIN; high = CHAR_MAX; break;
    case TYPE_U32: high = UINT_MAX; break;
    case TYPE_U16: high = USHRT_MAX; break;
    case TYPE_U8: high = UCHAR_MAX; break;
    }
    if (type == TYPE_U64 && x < 0)
        return other == TYPE_U64 ? x : high;
    return clamp(x, low, high);
}

/* An element of s32 or s64. */
static long whole_element(tensor t, long number)
{
    __global const char *place = base_of(t) + where(t, number);
    return type_of(t) == TYPE_S64 ? *(__global const long *)place : *(__global const int *)place;
}

/* An element as it is stored. */
static real element(tensor t, long number) { return load(type_of(t), base_of(t) + where(t, number)); }
static void put(real x, tensor t, long number) { store(x, type_of(t), base_of(t) + where(t, number)); }

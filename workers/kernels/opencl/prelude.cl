/* Shared by all kernels: vectors of V floats, whole or cut at the end of a row, functions of one and two variables,
 * and the chain of post-operations that a kernel applies before it stores.
 *
 * Defined for each kernel before this text: V, POST_BINARY (whether the chain has a second source) and
 * POST_OPS(x, other) (the chain as statements on x).
 */
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

typedef JOIN(float, V) vec;
#define vec_load(p) JOIN(vload, V)(0, p)
#define vec_store(x, p) JOIN(vstore, V)(x, 0, p)

/* A buffer comes with an offset in bytes: sub-buffers would have to be aligned as the device likes. */
#define SOURCE(name) __global const float *name##_base, long name##_offset
#define TARGET(name) __global float *name##_base, long name##_offset
#define source_at(name) ((__global const float *)((__global const char *)name##_base + name##_offset))
#define target_at(name) ((__global float *)((__global char *)name##_base + name##_offset))

#if POST_BINARY
#define OTHER , SOURCE(other)
#define other_at() source_at(other)
#else
#define OTHER
#define other_at() ((__global const float *)0)
#endif

/* Work is numbered through a grid of two dimensions, so that neither grows large; the last row may be partly idle. */
#define ITEM ((long)get_global_id(1) * (long)get_global_size(0) + (long)get_global_id(0))

/* Load `count` floats; lanes beyond are zero. */
static vec load_lanes(__global const float *p, long count)
{
    if (count >= V)
        return vec_load(p);
    float lanes[V];
    for (int i = 0; i < V; ++i)
        lanes[i] = i < count ? p[i] : 0.0f;
    return vec_load(lanes);
}

static void store_lanes(vec x, __global float *p, long first, long count)
{
    if (first == 0 && count >= V) {
        vec_store(x, p);
        return;
    }
    float lanes[V];
    vec_store(x, lanes);
    for (int i = 0; i < V; ++i)
        if (i >= first && i < count)
            p[i] = lanes[i];
}

/* FOLD(join, x) reduces a vector to a float by halves. */
#define fold4(join, x) join(join((x).s0, (x).s2), join((x).s1, (x).s3))
#define fold8(join, x) fold4(join, join((x).lo, (x).hi))
#define fold16(join, x) fold8(join, join((x).lo, (x).hi))
#define FOLD(join, x) JOIN(fold, V)(join, x)
#define plus(a, b) ((a) + (b))
static float sum_lanes(vec x) { return FOLD(plus, x); }
static float max_lanes(vec x) { return FOLD(fmax, x); }

/* Functions of one variable as oneDNN defines them; comparisons are written so that NaN passes through. */
static vec eltwise_relu(vec x, float alpha, float beta)
{
    /* A slope of 0 gives 0 at minus infinity too; the product would be NaN. */
    vec negative = alpha * x;
    if (alpha == 0.0f)
        negative = x != x ? x : 0.0f;
    return x > 0.0f ? x : negative;
}
static vec eltwise_tanh(vec x, float alpha, float beta) { return tanh(x); }
static vec eltwise_elu(vec x, float alpha, float beta) { return x >= 0.0f ? x : alpha * expm1(x); }
static vec eltwise_square(vec x, float alpha, float beta) { return x * x; }
static vec eltwise_abs(vec x, float alpha, float beta) { return fabs(x); }
static vec eltwise_sqrt(vec x, float alpha, float beta) { return sqrt(x); }
static vec eltwise_linear(vec x, float alpha, float beta) { return mad(x, (vec)alpha, (vec)beta); }
static vec eltwise_exp(vec x, float alpha, float beta) { return exp(x); }
static vec eltwise_log(vec x, float alpha, float beta) { return log(x); }
static vec eltwise_clip(vec x, float alpha, float beta)
{
    vec low = alpha, high = beta;
    vec raised = x < low ? low : x;
    return raised > high ? high : raised;
}
static vec eltwise_logistic(vec x, float alpha, float beta)
{
    /* Through exp(-|x|), which keeps its precision if the result is small. */
    vec small = exp(-fabs(x));
    vec above = x < 0.0f ? small : 1.0f;
    return above / (small + 1.0f);
}
static vec eltwise_gelu_erf(vec x, float alpha, float beta)
{
    /* x/2 erfc(-x/sqrt2), erfc by Chebyshev fitting (Numerical Recipes, 3rd ed., 6.2.2), relative error 1.2e-7. The
     * exponent x*x/2 is taken with the rounding error of its product; beyond 15 erfc is 0 in float. */
    vec size = fmin(fabs(x), 15.0f), half_size = size * 0.5f;
    vec t = 2.0f / (size * 0.70710678118654752f + 2.0f);
    vec p = 0.17087277f;
    p = mad(p, t, (vec)-0.82215223f);
    p = mad(p, t, (vec)1.48851587f);
    p = mad(p, t, (vec)-1.13520398f);
    p = mad(p, t, (vec)0.27886807f);
    p = mad(p, t, (vec)-0.18628806f);
    p = mad(p, t, (vec)0.09678418f);
    p = mad(p, t, (vec)0.37409196f);
    p = mad(p, t, (vec)1.00002368f);
    p = mad(p, t, (vec)-1.26551223f);
    vec exponent = half_size * size;
    vec lost = fma(half_size, size, -exponent);
    vec tail = t * exp(p) * exp(-exponent);
    tail -= tail * lost;
    return x * 0.5f * (x > 0.0f ? 2.0f - tail : tail);
}
static vec eltwise_clip_v2(vec x, float alpha, float beta) { return eltwise_clip(x, alpha, beta); }
static vec eltwise_gelu_tanh(vec x, float alpha, float beta)
{
    /* x logistic(z), z = 2 sqrt(2 / pi) (x + 0.044715 x^3), with the rounding errors of x * x and z as a factor. */
    vec size = fabs(x);
    size = size > 16.0f ? 16.0f : size;
    vec square = size * size, cubic = 0.071354816f;
    vec inner = mad(cubic, square, (vec)1.5957691f);
    vec z = size * inner;
    vec lost = fma(size, inner, -z) + size * cubic * fma(size, size, -square);
    vec small = exp(-z);
    small -= small * lost;
    vec above = x < 0.0f ? small : 1.0f;
    return x * (above / (small + 1.0f));
}
static vec eltwise_pow(vec x, float alpha, float beta) { return alpha * pow(x, (vec)beta); }
static vec eltwise_round(vec x, float alpha, float beta) { return rint(x); }
static vec eltwise_floor(vec x, float alpha, float beta) { return floor(x); }
static vec eltwise_ceil(vec x, float alpha, float beta) { return ceil(x); }
static vec eltwise_trunc(vec x, float alpha, float beta) { return trunc(x); }
static vec eltwise_erf(vec x, float alpha, float beta) { return erf(x); }
// PoCL takes a subnormal number for 0.0079; below 2^-13 the nearest floats to sin(x), tan(x) and cos(x) are x, x and 1
static vec eltwise_sin(vec x, float alpha, float beta) { return fabs(x) < 0x1p-13f ? x : sin(x); }
static vec eltwise_cos(vec x, float alpha, float beta) { return fabs(x) < 0x1p-13f ? 1.0f : cos(x); }
static vec eltwise_tan(vec x, float alpha, float beta) { return fabs(x) < 0x1p-13f ? x : tan(x); }
static vec eltwise_atan(vec x, float alpha, float beta) { return atan(x); }
static vec eltwise_asin(vec x, float alpha, float beta) { return asin(x); }
static vec eltwise_acos(vec x, float alpha, float beta) { return acos(x); }
static vec eltwise_sign(vec x, float alpha, float beta)
{
    vec below = x < 0.0f ? -1.0f : x;
    return x > 0.0f ? 1.0f : below;
}
static vec eltwise_threshold(vec x, float alpha, float beta) { return x > alpha ? x : 0.0f; }
static vec eltwise_softsign(vec x, float alpha, float beta) { return x / (fabs(x) + 1.0f); }
static vec eltwise_hardsigmoid(vec x, float alpha, float beta)
{
    return eltwise_clip(mad(x, (vec)alpha, (vec)beta), 0.0f, 1.0f);
}
static vec eltwise_hardswish(vec x, float alpha, float beta) { return x * eltwise_hardsigmoid(x, alpha, beta); }
static vec eltwise_softplus(vec x, float alpha, float beta)
{
    /* max(alpha x, 0) / alpha is x or 0, which cannot overflow. */
    vec z = alpha * x;
    return (z > 0.0f ? x : 0.0f) + log1p(exp(-fabs(z))) / alpha;
}
static vec eltwise_swish(vec x, float alpha, float beta) { return x * eltwise_logistic(alpha * x, 0.0f, 0.0f); }
static vec eltwise_mish(vec x, float alpha, float beta)
{
    /* tanh(ln(1 + e)) = e (e + 2) / (e (e + 2) + 2) with e = exp(x); 1 from x = 20. */
    vec e = exp(x > 20.0f ? 20.0f : x);
    vec product = e * (e + 2.0f);
    return x * (product / (product + 2.0f));
}

static vec binary_add(vec a, vec b) { return a + b; }
static vec binary_sub(vec a, vec b) { return a - b; }
static vec binary_mul(vec a, vec b) { return a * b; }
static vec binary_div(vec a, vec b) { return a / b; }
static vec binary_max(vec a, vec b) { return (a > b) | (a != a) ? a : b; }
static vec binary_min(vec a, vec b) { return (a < b) | (a != a) ? a : b; }
static vec binary_pow(vec a, vec b) { return pow(a, b); }

/* Apply the chain to lanes first .. count - 1 of x and store them at `at`; `other` has the layout of dst. */
static void finish(vec x, __global float *dst, __global const float *other, long at, long first, long count)
{
#if POST_BINARY
    vec operand = load_lanes(other + at, count);
#endif
    POST_OPS(x, operand);
    store_lanes(x, dst + at, first, count);
}

/* Functions of one and of two variables as oneDNN defines them, and gradients; chosen at run time.
 *
 * Defined before this text: an ELTWISE_ and a BINARY_ macro for each algorithm. Comparisons let NaN pass.
 */
static real at_least(real x, real low) { return x < low ? low : x; }
static real at_most(real x, real high) { return x > high ? high : x; }
static real logistic(real x)
{
    /* Through exp(-|x|), which keeps its precision if the result is small. */
    real small = exp(-fabs(x));
    return (x < 0 ? small : 1) / (small + 1);
}
/* How a range of numbers that has 0 becomes bytes: its scale, its zero point, and a byte, 0 for NaN. Each step is rounded to
 * float. In the widest type: a quotient of floats that is rounded twice is the same as if it is rounded once.
 */
static float step_of(float least, float most)
{
    float step = (float)((real)(float)(most - least) / (real)255);
    return step == 0 ? 1 : step;
}
static float point_of(float least, float step)
{
    /* An infinite range by an infinite step is no number. */
    float start = (float)((real)-least / (real)step);
    return start < 255 ? rint(start) : 255;
}
static float byte_of(float value, float step, float point)
{
    float found = rint((float)((real)value / (real)step)) + point;
    return found > 0 ? min(found, 255.0f) : 0;
}
static real softplus(real x) { return at_least(x, 0) + log1p(exp(-fabs(x))); }

#define SQRT_HALF ((real)0.70710678118654752440)
#define SQRT_2 ((real)1.41421356237309504880)
#define SQRT_2_OVER_PI ((real)0.79788456080286535588)
#define GELU_CUBIC ((real)0.044715)

static real eltwise_value(int algorithm, real x, real alpha, real beta)
{
    switch (algorithm) {
    /* A slope of 0 gives 0 at minus infinity too; the product would be NaN. */
    case ELTWISE_RELU: return x > 0 || x != x ? x : alpha == 0 ? 0 : alpha * x;
    case ELTWISE_TANH: return tanh(x);
    case ELTWISE_ELU: return x >= 0 ? x : alpha * expm1(x);
    case ELTWISE_SQUARE: return x * x;
    case ELTWISE_ABS: return fabs(x);
    case ELTWISE_SQRT: return sqrt(x);
    case ELTWISE_LINEAR: return alpha * x + beta;
    case ELTWISE_LOGISTIC: return logistic(x);
    case ELTWISE_EXP: return exp(x);
    case ELTWISE_LOG: return log(x);
    case ELTWISE_CLIP:
    case ELTWISE_CLIP_V2: return at_most(at_least(x, alpha), beta);
    case ELTWISE_GELU_ERF: return (real)0.5 * x * erfc(-x * SQRT_HALF);
    case ELTWISE_GELU_TANH: return x * logistic(2 * SQRT_2_OVER_PI * x * (1 + GELU_CUBIC * x * x));
    case ELTWISE_HARDSWISH: return x * at_most(at_least(alpha * x + beta, 0), 1);
    case ELTWISE_HARDSIGMOID: return at_most(at_least(alpha * x + beta, 0), 1);
    case ELTWISE_SOFTPLUS: return softplus(alpha * x) / alpha;
    case ELTWISE_SWISH: return x * logistic(alpha * x);
    case ELTWISE_MISH: return x * tanh(softplus(x));
    case ELTWISE_POW: return alpha * pow(x, beta);
    case ELTWISE_ROUND: return rint(x);
    case ELTWISE_FLOOR: return floor(x);
    case ELTWISE_CEIL: return ceil(x);
    case ELTWISE_TRUNC: return trunc(x);
    case ELTWISE_ERF: return erf(x);
    case ELTWISE_SIN: return sin(x);
    case ELTWISE_COS: return cos(x);
    case ELTWISE_SOFTSIGN: return x / (fabs(x) + 1);
    case ELTWISE_TAN: return tan(x);
    case ELTWISE_ATAN: return atan(x);
    case ELTWISE_ASIN: return asin(x);
    case ELTWISE_ACOS: return acos(x);
    case ELTWISE_SIGN: return x > 0 ? 1 : x < 0 ? -1 : x;
    case ELTWISE_THRESHOLD: return x > alpha ? x : 0;
    }
    return NAN;
}

/* f'(x) of every algorithm that has one. */
static real slope(int algorithm, real x, real alpha, real beta)
{
    real y;
    switch (algorithm) {
    case ELTWISE_RELU: return x > 0 ? 1 : alpha;
    /* Not 1 - tanh(x) ** 2, which cancels to nothing if tanh is nearly 1. */
    case ELTWISE_TANH: return 4 * logistic(2 * x) * logistic(-2 * x);
    case ELTWISE_ELU: return x > 0 ? 1 : alpha * exp(x);
    case ELTWISE_SQUARE: return 2 * x;
    case ELTWISE_ABS: return x > 0 ? 1 : x < 0 ? -1 : x;
    case ELTWISE_SQRT: return (real)0.5 / sqrt(x);
    case ELTWISE_LINEAR: return alpha;
    case ELTWISE_LOGISTIC: return logistic(x) * logistic(-x);
    case ELTWISE_EXP: return exp(x);
    case ELTWISE_LOG: return 1 / x;
    case ELTWISE_CLIP: return x > alpha && x <= beta;
    case ELTWISE_CLIP_V2: return x > alpha && x < beta;
    case ELTWISE_GELU_ERF:
        return (real)0.5 * (erfc(-x * SQRT_HALF) + x * SQRT_2_OVER_PI * exp((real)-0.5 * x * x));
    case ELTWISE_GELU_TANH:
        y = logistic(2 * SQRT_2_OVER_PI * x * (1 + GELU_CUBIC * x * x));
        return y + y * (1 - y) * 2 * SQRT_2_OVER_PI * x * (1 + 3 * GELU_CUBIC * x * x);
    case ELTWISE_HARDSWISH:
        y = alpha * x + beta;
        return y <= 0 ? 0 : y >= 1 ? 1 : y + alpha * x;
    case ELTWISE_HARDSIGMOID:
        y = alpha * x + beta;
        return y <= 0 || y >= 1 ? 0 : alpha;
    case ELTWISE_SOFTPLUS: return logistic(alpha * x);
    case ELTWISE_SWISH: return logistic(alpha * x) * (1 + alpha * x * logistic(-alpha * x));
    case ELTWISE_MISH:
        y = tanh(softplus(x));
        return y + x * (1 - y * y) * logistic(x);
    case ELTWISE_ERF: return SQRT_2_OVER_PI * SQRT_2 * exp(-x * x);
    case ELTWISE_SIN: return cos(x);
    case ELTWISE_COS: return -sin(x);
    case ELTWISE_TAN:
        y = cos(x);
        return 1 / (y * y);
    case ELTWISE_ATAN: return 1 / (1 + x * x);
    case ELTWISE_ASIN: return 1 / sqrt((1 - x) * (1 + x));
    case ELTWISE_ACOS: return -1 / sqrt((1 - x) * (1 + x));
    case ELTWISE_THRESHOLD: return x > alpha;
    case ELTWISE_SOFTSIGN:
        y = fabs(x) + 1;
        return 1 / (y * y);
    /* A power of 0 is constant, at x = 0 too. */
    case ELTWISE_POW: return beta == 0 ? 0 : alpha * beta * pow(x, beta - 1);
    }
    return 0;
}

/* f'(x) from y = f(x), of the algorithms that allow it. */
static real slope_from_result(int algorithm, real y, real alpha, real beta)
{
    switch (algorithm) {
    case ELTWISE_RELU: return y > 0 ? 1 : alpha;
    case ELTWISE_TANH: return (1 - y) * (1 + y);
    case ELTWISE_ELU: return y > 0 ? 1 : y + alpha;
    case ELTWISE_SQRT: return (real)0.5 / y;
    case ELTWISE_LOGISTIC: return y * (1 - y);
    case ELTWISE_EXP: return y;
    }
    return y > alpha && y < beta;
}

static real binary_value(int algorithm, real a, real b)
{
    switch (algorithm) {
    case BINARY_ADD: return a + b;
    case BINARY_SUB: return a - b;
    case BINARY_MUL: return a * b;
    case BINARY_DIV: return a / b;
    case BINARY_MAX: return a > b || a != a ? a : b;
    case BINARY_MIN: return a < b || a != a ? a : b;
    case BINARY_GE: return a >= b;
    case BINARY_GT: return a > b;
    case BINARY_LE: return a <= b;
    case BINARY_LT: return a < b;
    case BINARY_EQ: return a == b;
    case BINARY_NE: return a != b;
    case BINARY_AND: return a != 0 && b != 0;
    case BINARY_OR: return a != 0 || b != 0;
    case BINARY_XOR: return (a != 0) != (b != 0);
    case BINARY_POW: return pow(a, b);
    }
    if (b == 0)
        return NAN;
    real rest = fmod(a, b);
    switch (algorithm) {
    case BINARY_MOD: return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    case BINARY_FMOD: return rest;
    case BINARY_FLOOR_DIV: return floor(a / b);
    case BINARY_TRUNC_DIV: return trunc(a / b);
    }
    return NAN;
}

/* Normalise by mean and variance, given or computed. An item is one mean, with all that it belongs to.
 *
 * Mean and variance are written if they are present and not `given`, the workspace if it is present. If not `centered`, the
 * mean is 0.
 */
__kernel void normalization(PRIMITIVE, long src, long mean, long variance, long scale, long shift, long dst,
                            long workspace, long chain, long rows, long given, long relu, long centered,
                            FRACTION(epsilon) OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src), to = tensor_at(dst);
    __global const long *shared = table_at(rows);
    long count = shared[0];
    real middle = 0, spread = 0;
    if (given) {
        if (centered)
            middle = element(tensor_at(mean), item);
        spread = element(tensor_at(variance), item);
    } else if (count) {
        for (long i = 0; i < count && centered; ++i)
            middle += element(from, numbered(shared, item, i));
        middle /= count;
        for (long i = 0; i < count; ++i) {
            real distance = element(from, numbered(shared, item, i)) - middle;
            spread += distance * distance;
        }
        spread /= count;
    }
    if (mean && !given)
        put(middle, tensor_at(mean), item);
    if (variance && !given)
        put(spread, tensor_at(variance), item);
    real deviation = sqrt(spread + fraction(epsilon));
    for (long i = 0; i < count; ++i) {
        long number = numbered(shared, item, i), channel = channel_of(shared, number);
        real x = (element(from, number) - middle) / deviation;
        if (scale)
            x *= element(tensor_at(scale), channel);
        if (shift)
            x += element(tensor_at(shift), channel);
        int cut = relu && x <= 0;
        if (workspace)
            put(!cut, tensor_at(workspace), number);
        finish(cut ? 0 : x, to, table_at(chain), number);
    }
}

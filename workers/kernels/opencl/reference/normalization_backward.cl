/* The gradient of a normalisation's src. An item is one mean, with all elements that it was computed from.
 *
 * With e the gradient of the normalised z = (x - mean) / deviation: diff_src = (e - mean(e) - z * mean(e * z)) /
 * deviation; if the statistics were given, e / deviation. Without a tensor of means they are 0, and mean(e) is left out.
 */
__kernel void normalization_backward(PRIMITIVE, long src, long mean, long variance, long scale, long diff_dst,
                                     long workspace, long diff_src, long chain, long rows, long given,
                                     FRACTION(epsilon) OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src), errors = tensor_at(diff_dst), kept = tensor_at(workspace), scales = tensor_at(scale);
    __global const long *shared = table_at(rows);
    long count = shared[0];
    real middle = mean ? element(tensor_at(mean), item) : 0, error_sum = 0, along_sum = 0;
    real deviation = sqrt(element(tensor_at(variance), item) + fraction(epsilon));
    for (int pass = given ? 1 : 0; pass < 2; ++pass)
        for (long i = 0; i < count; ++i) {
            long number = numbered(shared, item, i);
            real error = masked(errors, kept, workspace, number), along = 0;
            if (scale)
                error *= element(scales, channel_of(shared, number));
            if (!given)
                along = (element(from, number) - middle) / deviation;
            if (pass) {
                error -= (error_sum + along * along_sum) / count;
                finish(error / deviation, tensor_at(diff_src), table_at(chain), number);
            } else {
                error_sum += mean ? error : 0;
                along_sum += error * along;
            }
        }
}

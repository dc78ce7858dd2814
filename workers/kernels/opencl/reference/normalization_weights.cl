/* The gradients of a normalisation's scale and shift. An item is a channel. */
__kernel void normalization_weights(PRIMITIVE, long src, long mean, long variance, long diff_dst, long workspace,
                                    long diff_scale, long diff_shift, long chain, long rows, FRACTION(epsilon) OPERANDS)
{
    BEGIN(item);
    tensor errors = tensor_at(diff_dst), kept = tensor_at(workspace);
    __global const long *shared = table_at(rows);
    real error_sum = 0, along_sum = 0;
    for (long i = 0; i < shared[6]; ++i) {
        long number = channel_numbered(shared, item, i), row = row_of(shared, number);
        real error = masked(errors, kept, workspace, number);
        real distance = element(tensor_at(src), number) - (mean ? element(tensor_at(mean), row) : 0);
        error_sum += error;
        along_sum += error * distance / sqrt(element(tensor_at(variance), row) + fraction(epsilon));
    }
    if (diff_scale)
        finish(along_sum, tensor_at(diff_scale), table_at(chain), item);
    if (diff_shift)
        finish(error_sum, tensor_at(diff_shift), table_at(chain), item);
}

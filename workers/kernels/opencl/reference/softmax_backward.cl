/* diff_src = dst * (diff_dst - sum of diff_dst * dst), or of the logarithm diff_dst - exp(dst) * sum of diff_dst.
 *
 * An item is a row of `size` elements `inner` apart.
 */
__kernel void softmax_backward(PRIMITIVE, long dst, long diff_dst, long diff_src, long chain, long size, long inner,
                               long logarithm OPERANDS)
{
    BEGIN(item);
    tensor result = tensor_at(dst), errors = tensor_at(diff_dst);
    long first = item / inner * size * inner + item % inner, end = first + size * inner;
    real sum = 0;
    for (long at = first; at < end; at += inner)
        sum += fetch(errors, at) * (logarithm ? 1 : fetch(result, at));
    for (long at = first; at < end; at += inner) {
        real y = fetch(result, at), error = fetch(errors, at);
        finish(logarithm ? error - exp(y) * sum : y * (error - sum), tensor_at(diff_src), table_at(chain), at);
    }
}

/* dst = exp(src - largest) / sum along an axis, or its logarithm. An item is a row of `size` elements `inner` apart. */
__kernel void softmax(PRIMITIVE, long src, long dst, long chain, long size, long inner, long logarithm OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src), to = tensor_at(dst);
    long first = item / inner * size * inner + item % inner, end = first + size * inner;
    real largest = -INFINITY, sum = 0;
    for (long at = first; at < end; at += inner)
        largest = at_least(fetch(from, at), largest);
    for (long at = first; at < end; at += inner)
        sum += exp(fetch(from, at) - largest);
    for (long at = first; at < end; at += inner) {
        real x = fetch(from, at) - largest;
        finish(logarithm ? x - log(sum) : exp(x) / sum, to, table_at(chain), at);
    }
}

/* diff_src = diff_dst * f'(data), data being src or dst. An item is an element. */
__kernel void eltwise_backward(PRIMITIVE, long data, long diff_dst, long diff_src, long chain, long algorithm,
                               long from_dst, FRACTION(alpha), FRACTION(beta) OPERANDS)
{
    BEGIN(item);
    real known = fetch(tensor_at(data), item), factor;
    if (from_dst)
        factor = slope_from_result((int)algorithm, known, fraction(alpha), fraction(beta));
    else
        factor = slope((int)algorithm, known, fraction(alpha), fraction(beta));
    finish(fetch(tensor_at(diff_dst), item) * factor, tensor_at(diff_src), table_at(chain), item);
}

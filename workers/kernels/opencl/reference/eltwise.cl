/* dst = f(src). An item is an element. */
__kernel void eltwise(PRIMITIVE, long src, long dst, long chain, long algorithm, FRACTION(alpha),
                      FRACTION(beta) OPERANDS)
{
    BEGIN(item);
    real x = eltwise_value((int)algorithm, fetch(tensor_at(src), item), fraction(alpha), fraction(beta));
    finish(x, tensor_at(dst), table_at(chain), item);
}

/* dst = src, its negative elements times weights. An item is an element. */
__kernel void prelu(PRIMITIVE, long src, long weights, long dst, long chain OPERANDS)
{
    BEGIN(item);
    real x = fetch(tensor_at(src), item);
    if (!(x > 0))
        x *= fetch(tensor_at(weights), item);
    finish(x, tensor_at(dst), table_at(chain), item);
}

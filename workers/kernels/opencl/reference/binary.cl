/* dst = f(src0, src1). An item is an element. */
__kernel void binary(PRIMITIVE, long src0, long src1, long dst, long chain, long algorithm OPERANDS)
{
    BEGIN(item);
    real x = binary_value((int)algorithm, fetch(tensor_at(src0), item), fetch(tensor_at(src1), item));
    finish(x, tensor_at(dst), table_at(chain), item);
}

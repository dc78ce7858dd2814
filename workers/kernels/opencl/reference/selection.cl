/* Take elements of one tensor or of another, all broadcast to dst. An item is an element. */
__kernel void selection(PRIMITIVE, long condition, long src0, long src1, long dst, long chain, long plain OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(fetch(tensor_at(condition), item) != 0 ? src0 : src1);
    copy_element(from, tensor_at(dst), table_at(chain), plain, item, item, 1);
}

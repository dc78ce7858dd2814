/* Copy the elements of a tensor that indices choose along an axis. An item is an element of dst.
 *
 * An index that is out of range gives zero.
 */
__kernel void gather_elements(PRIMITIVE, long src, long indices, long dst, long chain, long plain, long axis OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src), to = tensor_at(dst);
    long index = whole_element(tensor_at(indices), item), size = size_of(from, (int)axis), number = 0, step = 1, rest = item;
    index += index < 0 ? size : 0;
    for (int d = rank_of(from) - 1; d >= 0; --d) {
        number += (d == axis ? index : rest % size_of(to, d)) * step;
        step *= size_of(from, d);
        rest /= size_of(to, d);
    }
    copy_element(from, to, table_at(chain), plain, item, number, index >= 0 && index < size);
}

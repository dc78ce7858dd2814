/* Copy into another layout, data type or place along an axis: reorder, shuffle, concat. An item is an element of src.
 *
 * Sizes of the axis are `src_axis` and `dst_axis`, elements behind it `inner`; index i of src becomes first + i % group
 * * rows + i / group. See `copy_element` for `plain`.
 */
__kernel void copy(PRIMITIVE, long src, long dst, long chain, long plain, long src_axis, long dst_axis, long inner,
                   long first, long group, long rows OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src), to = tensor_at(dst);
    long outer = item / inner / src_axis, index = item / inner % src_axis;
    long number = (outer * dst_axis + first + index % group * rows + index / group) * inner + item % inner;
    copy_element(from, to, table_at(chain), plain, number, item, 1);
}

/* Copy the parts of a tensor that indices choose. An item is an element of dst, which is outer x indices x inner.
 *
 * `axes` dimensions of src from `axis` on have an index; `shared` outer parts have the same indices. An index that is out of
 * range gives zeros.
 */
__kernel void gather(PRIMITIVE, long src, long indices, long dst, long chain, long plain, long axis, long axes, long count,
                     long shared, long inner OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src), chosen = tensor_at(indices), to = tensor_at(dst);
    long outer = item / inner / count, first = (outer / shared * count + item / inner % count) * axes;
    long number = outer;
    int inside = 1;
    for (long i = 0; i < axes; ++i) {
        long size = size_of(from, (int)(axis + i)), index = whole_element(chosen, first + i);
        index += index < 0 ? size : 0;
        inside = inside && index >= 0 && index < size;
        number = number * size + index;
    }
    copy_element(from, to, table_at(chain), plain, item, number * inner + item % inner, inside);
}

/* Replace the parts of a tensor at indices, or combine updates with them. An item is an element of dst.
 *
 * Each part has `inner` elements; the first `axes` dimensions of src have an index. One that is out of range does nothing.
 */
__kernel void scatter(PRIMITIVE, long src, long indices, long updates, long dst, long chain, long plain, long reduction,
                      long axes, long count, long inner OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src), chosen = tensor_at(indices), given = tensor_at(updates), source = from;
    long row = item / inner, number = item;
    real value = fetch(from, item);
    const int whole = *table_at(chain) == 0 && are_whole(from, tensor_at(dst)) && are_whole(given, tensor_at(dst));
    long total = whole ? integer(from, item) : 0;
    for (long i = 0; i < count; ++i) {
        long found = 0;
        int inside = 1;
        for (long axis = 0; axis < axes; ++axis) {
            long size = size_of(from, (int)axis), index = whole_element(chosen, i * axes + axis);
            index += index < 0 ? size : 0;
            inside = inside && index >= 0 && index < size;
            found = found * size + index;
        }
        if (inside && found == row) {
            source = given;
            number = i * inner + item % inner;
            if (whole)
                total = scattered_integer(reduction, total, integer(given, number), type_of(given));
            else
                value = scattered(reduction, value, fetch(given, number));
        }
    }
    if (plain)
        copy_element(source, tensor_at(dst), table_at(chain), plain, item, number, 1);
    else if (whole)
        put_integer(total, tensor_at(dst), item);
    else
        finish(value, tensor_at(dst), table_at(chain), item);
}

/* Replace the elements of a tensor at indices along an axis, or combine updates with them. An item is an element of dst.
 *
 * An index that is out of range does nothing.
 */
__kernel void scatter_elements(PRIMITIVE, long src, long indices, long updates, long dst, long chain, long plain,
                               long reduction, long axis OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src), chosen = tensor_at(indices), given = tensor_at(updates), source = from;
    long number = item, first = 0, step = 1, distance = 1, own = 0, rest = item, count = size_of(chosen, (int)axis);
    real value = fetch(from, item);
    const int whole = *table_at(chain) == 0 && are_whole(from, tensor_at(dst)) && are_whole(given, tensor_at(dst));
    long total = whole ? integer(from, item) : 0;
    for (int d = rank_of(from) - 1; d >= 0; --d) {
        long position = rest % size_of(from, d);
        if (d == axis) {
            own = position;
            distance = step;
        } else {
            first += position * step;
            if (position >= size_of(chosen, d))
                count = 0;
        }
        step *= size_of(chosen, d);
        rest /= size_of(from, d);
    }
    for (long i = 0; i < count; ++i) {
        long index = whole_element(chosen, first + i * distance);
        index += index < 0 ? size_of(from, (int)axis) : 0;
        if (index == own) {
            source = given;
            number = first + i * distance;
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

/* Add up blocks of an image at their places. An item is an element of the image.
 *
 * A table has for each dimension the stride, then the distances between elements of a block, then the padding.
 */
__kernel void fold(PRIMITIVE, long src, long dst, long table OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src), to = tensor_at(dst);
    __global const long *numbers = table_at(table);
    long count = rank_of(to) - 2, size = 1;
    for (long axis = 0; axis < count; ++axis)
        size *= size_of(from, 2 + axis);
    real total = 0;
    for (long element = 0; element < size; ++element) {
        long place = item, inner = element, start = 0;
        int is_inside = 1;
        for (long axis = count - 1; axis >= 0; --axis) {
            long along = place % size_of(to, 2 + axis), k = inner % size_of(from, 2 + axis), stride = numbers[axis];
            place /= size_of(to, 2 + axis);
            inner /= size_of(from, 2 + axis);
            long moved = along + numbers[2 * count + axis] - k * numbers[count + axis];
            is_inside = is_inside && moved >= 0 && moved % stride == 0 && moved / stride < size_of(from, 2 + count + axis);
            start += at(from, 2 + axis, k) + at(from, 2 + count + axis, is_inside ? moved / stride : 0);
        }
        if (is_inside) {
            start += at(from, 1, place % size_of(to, 1)) + at(from, 0, place / size_of(to, 1));
            total += load(type_of(from), base_of(from) + start);
        }
    }
    put(total, to, item);
}

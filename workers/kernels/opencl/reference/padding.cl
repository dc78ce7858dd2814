/* Zero the padding of a blocked tensor. An item is an element, or a place in the padding. */
__kernel void padding(PRIMITIVE, long target OPERANDS)
{
    BEGIN(item);
    tensor t = tensor_at(target);
    long place = 0;
    int outside = 0;
    for (int d = rank_of(t) - 1; d >= 0; --d) {
        long index = item % padded_size_of(t, d);
        item /= padded_size_of(t, d);
        outside |= index >= size_of(t, d);
        place += at(t, d, index);
    }
    if (outside)
        store(0, type_of(t), base_of(t) + place);
}

/* The indices of the elements that are not 0, in row-major order. One item does all. */
__kernel void non_zero(PRIMITIVE, long src, long indices, long count, long elements OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src), to = tensor_at(indices);
    int dims = rank_of(from);
    long found = 0;
    for (long element = 0; element < elements; ++element) {
        if (fetch(from, element) == 0)
            continue;
        long rest = element;
        for (int dim = dims - 1; dim >= 0; --dim) {
            put(rest % size_of(from, dim), to, dim * elements + found);
            rest /= size_of(from, dim);
        }
        ++found;
    }
    for (long column = found; column < elements; ++column)
        for (int dim = 0; dim < dims; ++dim)
            put(0, to, dim * elements + column);
    put(found, tensor_at(count), 0);
}

/* Multiply the pivots of matrices. An item is a matrix, with a copy of its own in the scratchpad. */
__kernel void determinant(PRIMITIVE, long src, long dst, MEMORY(scratch) OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src);
    long rows = size_of(from, 1);
    __global real *a = (__global real *)(scratch_base + scratch_offset) + item * rows * rows;
    for (long place = 0; place < rows * rows; ++place)
        a[place] = element(from, item * rows * rows + place);
    real total = 1;
    for (long column = 0; column < rows; ++column) {
        real best = -1;
        long chosen = column;
        for (long row = column; row < rows; ++row) {
            real value = fabs(a[row * rows + column]);
            if (value > best || value != value) {
                best = value;
                chosen = row;
            }
        }
        if (chosen != column) {
            total = -total;
            for (long place = column; place < rows; ++place) {
                real kept = a[column * rows + place];
                a[column * rows + place] = a[chosen * rows + place];
                a[chosen * rows + place] = kept;
            }
        }
        real pivot = a[column * rows + column];
        if (pivot == 0) {
            total = 0;
            break;
        }
        total *= pivot;
        for (long row = column + 1; row < rows; ++row) {
            real factor = a[row * rows + column] / pivot;
            for (long place = column + 1; place < rows; ++place)
                a[row * rows + place] -= factor * a[column * rows + place];
        }
    }
    put(total, tensor_at(dst), item);
}

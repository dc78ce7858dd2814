/* Collect the gradients of a pooling's src. An item is an element of it, which asks every window that sees it. */
__kernel void pooling_backward(PRIMITIVE, long diff_src, long diff_dst, long workspace, long chain, long window,
                               long algorithm OPERANDS)
{
    BEGIN(item);
    tensor to = tensor_at(diff_src), errors = tensor_at(diff_dst), winners = tensor_at(workspace);
    __global const long *moved = table_at(window);
    int axes = rank_of(to);
    long taps = positions_of(moved, axes);
    real sum = 0;
    for (long position = 0; position < taps; ++position) {
        long index = item, rest = position, number = 0, area = 1, count = 1;
        int seen = 1;
        for (int d = axes - 1; d >= 2; --d) {
            long size = size_of(errors, d), inside = 0;
            long there = tap_back(moved, d, index % size_of(to, d), rest % kernel_size(moved, d), size);
            index /= size_of(to, d);
            rest /= kernel_size(moved, d);
            seen &= there >= 0;
            number += there * area;
            area *= size;
            for (long p = 0; p < kernel_size(moved, d); ++p)
                inside += tap(moved, d, there, p, size_of(to, d)) >= 0;
            count *= inside;
        }
        if (!seen)
            continue;
        number += index * area;
        real error = element(errors, number);
        if (algorithm == POOLING_MAX)
            sum += element(winners, number) == position ? error : 0;
        else
            sum += error / (algorithm == POOLING_AVG_INCLUDE_PADDING ? taps : count);
    }
    finish(sum, to, table_at(chain), item);
}

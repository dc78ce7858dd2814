/* Sum the gradients of a convolution's weights. An item is one weight, or one bias if there is no src. */
__kernel void convolution_weights(PRIMITIVE, long src, long diff_dst, long gradient, long chain, long window,
                                  long groups OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src), errors = tensor_at(diff_dst), to = tensor_at(gradient);
    __global const long *moved = table_at(window);
    int axes = rank_of(errors);
    long taps = src ? positions_of(moved, axes) : 1, inputs = src ? size_of(to, 1) : 1;
    long output = item / taps / inputs, source = output / (size_of(errors, 1) / groups) * inputs + item / taps % inputs;
    long area = 1;
    real sum = 0;
    for (int d = 2; d < axes; ++d)
        area *= size_of(errors, d);
    for (long spot = 0; spot < area; ++spot) {
        long index = spot, rest = item % taps, error = at(errors, 1, output), seen_at = src ? at(from, 1, source) : 0;
        int seen = 1;
        for (int d = axes - 1; d >= 2; --d) {
            long here = index % size_of(errors, d);
            error += at(errors, d, here);
            index /= size_of(errors, d);
            if (!src)
                continue;
            long there = tap(moved, d, here, rest % kernel_size(moved, d), size_of(from, d));
            rest /= kernel_size(moved, d);
            seen &= there >= 0;
            seen_at += at(from, d, there);
        }
        for (long image = 0; seen && image < size_of(errors, 0); ++image) {
            real x = src ? load(type_of(from), base_of(from) + seen_at + at(from, 0, image)) : 1;
            sum += x * load(type_of(errors), base_of(errors) + error + at(errors, 0, image));
        }
    }
    finish(sum, to, table_at(chain), item);
}

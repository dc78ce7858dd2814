/* A tensor as bytes with the scale and zero point of its range; one item for all of it. Each step is rounded to float. */
__kernel void dynamic_quantise(PRIMITIVE, long src, long dst, long scale, long zero_point, long count OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src), to = tensor_at(dst);
    float least = 0, most = 0;
    int is_number = 1;
    for (long number = 0; number < count; ++number) {
        float value = (float)fetch(from, number);
        is_number &= value == value;
        if (value < least)
            least = value;
        if (value > most)
            most = value;
    }
    if (!is_number)
        least = most = 0;
    float step = step_of(least, most), point = point_of(least, step);
    for (long number = 0; number < count; ++number)
        put(byte_of((float)fetch(from, number), step, point), to, number);
    put(step, tensor_at(scale), 0);
    put(point, tensor_at(zero_point), 0);
}

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
    /* In the widest type: a quotient of floats that is rounded twice is the same as if it is rounded once. */
    float step = (float)((real)(float)(most - least) / (real)255);
    if (step == 0)
        step = 1;
    float start = (float)((real)-least / (real)step);
    /* An infinite range by an infinite step is no number. */
    float point = start < 255 ? rint(start) : 255;
    for (long number = 0; number < count; ++number) {
        float found = rint((float)((real)(float)fetch(from, number) / (real)step)) + point;
        put(found > 0 ? min(found, 255.0f) : 0, to, number);
    }
    put(step, tensor_at(scale), 0);
    put(point, tensor_at(zero_point), 0);
}

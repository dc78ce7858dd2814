/* dst = samples of src, pooled in each part of boxes. An item is an element of dst.
 *
 * Lengths of boxes are float unless boxes are f64 (`wide`). There are as many samples a part along a dimension as it has elements
 * if `samples` is 0. With `greatest` the result is the greatest of all weighed elements, else the mean of samples.
 */
#define FAR ((real)1099511627776)

static real box_end(tensor boxes, long number, long wide, long half_pixel, real scale)
{
    real given = element(boxes, number), shift = half_pixel ? (real)0.5 : 0;
    if (wide)
        return given * scale - shift;
    float scaled = (float)given * (float)scale;
    return scaled - (float)shift;
}

static real box_length(real start, real end, long wide, long half_pixel)
{
    real length = wide ? end - start : (real)((float)end - (float)start);
    return half_pixel || length > 1 ? length : 1;
}

static long samples_of(real start, real length, long parts, long wide, long samples)
{
    if (samples)
        return samples;
    if (!(fabs(start) < FAR && length > 0 && length < FAR))
        return 0;
    real ratio = wide ? length / parts : (real)((float)length / (float)parts);
    return max(1L, (long)ceil(ratio));
}

static long first_sample(real start, real step, long number, long samples)
{
    real first = floor((-1 - start) / step) - 2;
    return samples || !(first > 0) ? 0 : min((long)first, number);
}

static long last_sample(real start, real step, long size, long number, long samples)
{
    real last = ceil((size - start) / step) + 2;
    return samples ? number : max(0L, min((long)last, number));
}

static long first_near(real place, long size) { return min((long)(place > 0 ? place : 0), size - 1); }

static real second_share(real place, long size)
{
    real held = place > 0 ? place : 0;
    return held >= size - 1 ? 0 : held - floor(held);
}

__kernel void roi_align(PRIMITIVE, long src, long boxes, long images, long dst, long chain, long wide, long greatest,
                        long samples, long half_pixel, FRACTION(scale) OPERANDS)
{
    BEGIN(item);
    real scale = fraction(scale);
    tensor from = tensor_at(src), given = tensor_at(boxes), to = tensor_at(dst);
    long channels = size_of(from, 1), height = size_of(from, 2), width = size_of(from, 3);
    long tall = size_of(to, 2), broad = size_of(to, 3);
    long part_x = item % broad, part_y = item / broad % tall, plane = item / broad / tall, box = plane / channels;
    long image = (long)element(tensor_at(images), box);
    real x = box_end(given, 4 * box, wide, half_pixel, scale), y = box_end(given, 4 * box + 1, wide, half_pixel, scale);
    real wide_x = box_length(x, box_end(given, 4 * box + 2, wide, half_pixel, scale), wide, half_pixel);
    real high_y = box_length(y, box_end(given, 4 * box + 3, wide, half_pixel, scale), wide, half_pixel);
    long across = samples_of(x, wide_x, broad, wide, samples), down = samples_of(y, high_y, tall, wide, samples);
    real value = 0;
    if (image >= 0 && image < size_of(from, 0) && across && down) {
        real step_x = wide_x / ((real)broad * across), step_y = high_y / ((real)tall * down);
        x += part_x * (wide_x / broad);
        y += part_y * (high_y / tall);
        long first_x = first_sample(x, step_x, across, samples), last_x = last_sample(x, step_x, width, across, samples);
        long first_y = first_sample(y, step_y, down, samples), last_y = last_sample(y, step_y, height, down, samples);
        /* Of the greatest, samples outside are zeros. */
        int some = last_x - first_x < across || last_y - first_y < down;
        value = greatest && !some ? -INFINITY : 0;
        long first = (image * channels + plane % channels) * height * width;
        for (long one = first_y; one < last_y; ++one)
            for (long other = first_x; other < last_x; ++other) {
                real at_y = y + (one + (real)0.5) * step_y, at_x = x + (other + (real)0.5) * step_x;
                int inside = at_y >= -1 && at_y <= height && at_x >= -1 && at_x <= width;
                if (greatest && !inside)
                    value = value > 0 ? value : 0;
                if (!inside)
                    continue;
                long near_y = first_near(at_y, height), near_x = first_near(at_x, width);
                real ratio_y = second_share(at_y, height), ratio_x = second_share(at_x, width);
                for (int corner = 0; corner < 4; ++corner) {
                    long row = min(near_y + corner / 2, height - 1), column = min(near_x + corner % 2, width - 1);
                    real weight = (corner / 2 ? ratio_y : 1 - ratio_y) * (corner % 2 ? ratio_x : 1 - ratio_x);
                    real weighed = weight * fetch(from, first + row * width + column);
                    value = !greatest ? value + weighed : value > weighed ? value : weighed;
                }
            }
        if (!greatest)
            value /= (real)across * down;
    }
    finish(value, to, table_at(chain), item);
}

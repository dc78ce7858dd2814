/* dst = src at the places of a grid: one, two or four neighbours (`taps`) along each dimension. An item is an element of dst.
 *
 * `padding` is a number of `SAMPLE_PADDINGS`: zeros, border, reflection.
 */
static real moved_place(real place, long padding, long corners, real size)
{
    if (padding == 2) {
        real low = corners ? 0 : -(real)0.5, span = corners ? size - 1 : size;
        if (span > 0) {
            real away = place - low;
            place = fabs(away - rint(away * ((real)0.5 / span)) * (2 * span)) + low;
        }
    }
    place = place > 0 ? place : 0;
    return place < size - 1 ? place : size - 1;
}

static real neighbour_weight(real ratio, long taps, long tap)
{
    if (taps == 2)
        return tap ? ratio : 1 - ratio;
    real a = -(real)0.75, x = fabs(ratio - (tap - 1));
    if (tap == 0 || tap == 3)
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
    return ((a + 2) * x - (a + 3)) * x * x + 1;
}

__kernel void grid_sample(PRIMITIVE, long src, long grid, long dst, long chain, long plain, long taps, long padding,
                          long corners OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src), places = tensor_at(grid), to = tensor_at(dst);
    int axes = rank_of(from) - 2;
    long points = 1, neighbours = 1;
    for (int axis = 0; axis < axes; ++axis) {
        points *= size_of(to, 2 + axis);
        neighbours *= taps;
    }
    long plane = item / points, place = (plane / size_of(from, 1) * points + item % points) * axes;
    real sum = 0;
    for (long neighbour = 0; neighbour < neighbours; ++neighbour) {
        long rest = neighbour, number = 0, step = 1;
        real weight = 1;
        int inside = 1;
        for (int axis = axes - 1; axis >= 0; --axis) {
            long length = size_of(from, 2 + axis), tap = rest % taps;
            real size = length, given = element(places, place + axes - 1 - axis);
            real at = given * ((corners ? size - 1 : size) / 2) + (size - 1) / 2;
            rest /= taps;
            at = taps == 1 ? rint(at) : at;
            at = padding && taps < 4 ? moved_place(at, padding, corners, size) : at;
            real first = taps == 1 ? at : floor(at), near = first + (tap - (taps == 4));
            weight *= taps == 1 ? 1 : neighbour_weight(at - first, taps, tap);
            near = padding ? moved_place(near, padding, corners, size) : near;
            if (near >= 0 && near <= size - 1)
                number += (long)near * step;
            else
                inside = 0;
            step *= length;
        }
        if (taps == 1)
            copy_element(from, to, table_at(chain), plain, item, plane * step + number, inside);
        else if (inside)
            sum += weight * fetch(from, plane * step + number);
    }
    if (taps > 1)
        finish(sum, to, table_at(chain), item);
}

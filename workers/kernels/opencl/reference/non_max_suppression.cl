/* The best boxes of each class of each image, without those that overlap a better one. One item does all.
 *
 * The box that follows is the best of those that come after the one before it: of a smaller score, or of the same at a
 * later place.
 */
static real edge_of(tensor boxes, long box, long axis, int upper, long centred)
{
    real one = fetch(boxes, 4 * box + axis), other = fetch(boxes, 4 * box + axis + 2);
    if (centred)
        return upper ? one + other / 2 : one - other / 2;
    return upper ? max(one, other) : min(one, other);
}

/* The intersection of two boxes over their union, less than all limits if there is none. */
static real overlap_of(tensor boxes, long box, long another, long centred)
{
    real common = 1, area = 1, further = 1;
    for (long axis = 0; axis < 2; ++axis) {
        real low = edge_of(boxes, box, axis, 0, centred), high = edge_of(boxes, box, axis, 1, centred);
        real least = edge_of(boxes, another, axis, 0, centred), most = edge_of(boxes, another, axis, 1, centred);
        common *= max((real)0, min(high, most) - max(low, least));
        area *= high - low;
        further *= most - least;
    }
    return common > 0 && area > 0 && further > 0 ? common / (area + further - common) : -INFINITY;
}

__kernel void non_max_suppression(PRIMITIVE, long boxes, long scores, long limits, long dst, long count, long images,
                                  long classes, long size, long most, long centred OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(boxes), values = tensor_at(scores), bounds = tensor_at(limits), to = tensor_at(dst);
    real room = fetch(bounds, 0), overlap = fetch(bounds, 1), least = fetch(bounds, 2);
    long rows = 0;
    for (long part = 0; part < images * classes; ++part) {
        long image = part / classes, first = rows, last = -1;
        real before = 0;
        while (rows - first + 1 <= room && rows - first < most) {
            long found = -1;
            real best = 0;
            for (long i = 0; i < size; ++i) {
                real score = fetch(values, part * size + i);
                int after = last < 0 || score < before || (score == before && i > last);
                if (score > least && after && (found < 0 || score > best)) {
                    found = i;
                    best = score;
                }
            }
            if (found < 0)
                break;
            before = best;
            last = found;
            int is_free = 1;
            for (long row = first; row < rows; ++row) {
                long chosen = (long)fetch(to, 3 * row + 2);
                is_free &= !(overlap_of(from, image * size + chosen, image * size + found, centred) > overlap);
            }
            if (is_free) {
                put(image, to, 3 * rows);
                put(part % classes, to, 3 * rows + 1);
                put(found, to, 3 * rows + 2);
                ++rows;
            }
        }
    }
    for (long i = 3 * rows; i < 3 * images * classes * most; ++i)
        put(0, to, i);
    put(rows, tensor_at(count), 0);
}

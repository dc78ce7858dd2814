/* dst = f(src) for `count` floats; FUNCTION(x, ALPHA, BETA) is the function. An item is a vector. */
__kernel void eltwise(SOURCE(src), TARGET(dst), long count OTHER)
{
    long at = ITEM * V;
    if (at >= count)
        return;
    vec x = load_lanes(source_at(src) + at, count - at);
    finish(FUNCTION(x, ALPHA, BETA), target_at(dst), other_at(), at, 0, count - at);
}

/* dst = sum of sources, each times its scale. An item is an element.
 *
 * `sources` are their number and then, for each, the bytes from here to its record and the bits of its scale.
 */
__kernel void sum(PRIMITIVE, long sources, long dst, long chain OPERANDS)
{
    BEGIN(item);
    __global const long *given = table_at(sources);
    tensor to = tensor_at(dst);
    int exact = *table_at(chain) == 0;
    long added = 0;
    for (long i = 0; i < given[0] && exact; ++i) {
        tensor from = make_tensor(memories, given + given[1 + 2 * i] / 8);
        exact = wraps_as(from, to) && fraction_of(given[2 + 2 * i]) == 1;
        added = (long)((ulong)added + (ulong)(exact ? integer(from, item) : 0));
    }
    if (exact) {
        put_integer(added, to, item);
        return;
    }
    real x = 0;
    for (long i = 0; i < given[0]; ++i) {
        tensor from = make_tensor(memories, given + given[1 + 2 * i] / 8);
        x += fraction_of(given[2 + 2 * i]) * fetch(from, item);
    }
    finish(x, to, table_at(chain), item);
}

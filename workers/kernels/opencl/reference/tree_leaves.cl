/* dst = the leaves of decision trees in which rows of src end. An item is one row in one tree. */
static long known_number(long number, long last) { return number >= 0 && number <= last ? number : last; }

__kernel void tree_leaves(PRIMITIVE, long src, long nodes, long limits, long roots, long dst, long levels OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src), tree = tensor_at(nodes), bounds = tensor_at(limits), to = tensor_at(dst);
    long columns = size_of(from, 1), last = size_of(tree, 0) - 1, count = size_of(bounds, 1), trees = size_of(to, 1);
    long at = known_number(whole_element(tensor_at(roots), item % trees), last);
    for (long level = 0; level < levels; ++level) {
        long column = known_number(whole_element(tree, 4 * at), columns - 1);
        real value = element(from, item / trees * columns + column);
        int passes = value <= element(bounds, count * at + count - 1);
        if (count == 2)
            passes = passes && value >= element(bounds, 2 * at);
        if (value != value)
            passes = whole_element(tree, 4 * at + 3) != 0;
        at = known_number(whole_element(tree, 4 * at + (passes ? 1 : 2)), last);
    }
    put_integer(at, to, item);
}

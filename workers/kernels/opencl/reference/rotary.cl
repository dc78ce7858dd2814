/* Rotate pairs of elements of rows. An item is an element of dst. */
__kernel void rotary(PRIMITIVE, long src, long cosine, long sine, long dst, long chain, long depth, long pairs,
                     long interleaved OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src), to = tensor_at(dst);
    long row = item / depth, at = item % depth;
    real value = fetch(from, item);
    if (at < 2 * pairs) {
        long second = interleaved ? at % 2 : at / pairs;
        long angle = row * pairs + (interleaved ? at / 2 : at - second * pairs), apart = interleaved ? 1 : pairs;
        real other = fetch(from, second ? item - apart : item + apart);
        real turned = other * fetch(tensor_at(sine), angle);
        value *= fetch(tensor_at(cosine), angle);
        value = second ? value + turned : value - turned;
    }
    finish(value, to, table_at(chain), item);
}

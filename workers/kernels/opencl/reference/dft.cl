/* A part of a Fourier transform's result is a sum over the signal. An item is one of them. */
__kernel void dft(PRIMITIVE, long src, long dst, long chain, long size, long made, long inner, long src_parts,
                  long dst_parts, long length, long read, long inverse, long mirrors OPERANDS)
{
    BEGIN(item);
    tensor from = tensor_at(src), to = tensor_at(dst);
    long number = item / dst_parts, part = item % dst_parts;
    long column = number / inner, behind = number % inner;
    long outer = column / made, frequency = column % made;
    real total = 0;
    for (long index = 0; index < length; ++index) {
        int conjugate = mirrors && 2 * index > length;
        long place = conjugate ? length - index : index;
        if (place >= read)
            continue;
        long first = ((outer * size + place) * inner + behind) * src_parts;
        real re = fetch(from, first), im = src_parts == 2 ? (real)fetch(from, first + 1) : (real)0;
        if (conjugate)
            im = -im;
        real turn = (real)2 * (real)(index * frequency % length) / (real)length;
        real cosine = cospi(turn), sine = inverse ? sinpi(turn) : -sinpi(turn);
        total += part == 0 ? re * cosine - im * sine : re * sine + im * cosine;
    }
    finish(inverse ? total / (real)length : total, to, table_at(chain), item);
}

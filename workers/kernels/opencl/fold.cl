/* Fold rows into images: the sum of all places to which `unfold`, whose sizes these are, copies an element.
 *
 * An item is one float of an image.
 */
__kernel void fold(TARGET(dst), SOURCE(src), long count, long N, long G, long I, long D, long H, long W,
                   long OD, long OH, long OW, long KD, long KH, long KW, long SD, long SH, long SW,
                   long XD, long XH, long XW, long PD, long PH, long PW)
{
    long item = ITEM;
    if (item >= count)
        return;
    long w = item % W, rest = item / W;
    long h = rest % H;
    rest /= H;
    long d = rest % D;
    rest /= D;
    long i = rest % I;
    rest /= I;
    long g = rest % G, n = rest / G;
    __global const float *from = source_at(src);
    float total = 0.0f;
    for (long kd = 0; kd < KD; ++kd) {
        long from_d = d + PD - kd * XD;
        if (from_d < 0 || from_d % SD != 0 || from_d >= OD * SD)
            continue;
        for (long kh = 0; kh < KH; ++kh) {
            long from_h = h + PH - kh * XH;
            if (from_h < 0 || from_h % SH != 0 || from_h >= OH * SH)
                continue;
            for (long kw = 0; kw < KW; ++kw) {
                long from_w = w + PW - kw * XW;
                if (from_w < 0 || from_w % SW != 0 || from_w >= OW * SW)
                    continue;
                long row = (((g * N + n) * OD + from_d / SD) * OH + from_h / SH) * OW + from_w / SW;
                total += from[(((row * I + i) * KD + kd) * KH + kh) * KW + kw];
            }
        }
    }
    target_at(dst)[item] = total;
}

/* Which elements share a mean, and which a scale, by their numbers: a table of
 *
 *     length, run, skip, rows, period, channels, reach
 *
 * that kernels/native/reference/rows.py explains.
 */
static long numbered(__global const long *rows, long row, long i)
{
    return i / rows[1] * rows[2] + row * rows[1] + i % rows[1];
}
static long row_of(__global const long *rows, long number) { return number / rows[1] % rows[3]; }
static long channel_of(__global const long *rows, long number) { return number / rows[4] % rows[5]; }
static long channel_numbered(__global const long *rows, long channel, long i)
{
    return (i / rows[4] * rows[5] + channel) * rows[4] + i % rows[4];
}

/* The gradient of an element of dst, 0 if a fused relu has cut it off; 0 means no workspace. */
static real masked(tensor diff_dst, tensor workspace, long has_workspace, long number)
{
    return has_workspace && element(workspace, number) == 0 ? 0 : element(diff_dst, number);
}

/* Windows over spatial dimensions: which index of one side and a position of the kernel meet which index of the other.
 *
 * kernels/native/reference/window.py defines the table of a window. Spatial dimensions begin at dimension 2.
 */
static long kernel_size(__global const long *window, int dim) { return window[4 * (dim - 2)]; }

static long positions_of(__global const long *window, int rank)
{
    long count = 1;
    for (int d = 2; d < rank; ++d)
        count *= kernel_size(window, d);
    return count;
}

/* The index of src of `size` that an index of dst sees through a position of the kernel; -1 in the padding. */
static long tap(__global const long *window, int dim, long index, long position, long size)
{
    __global const long *w = window + 4 * (dim - 2);
    long seen = index * w[1] + position * w[2] - w[3];
    return seen >= 0 && seen < size ? seen : -1;
}

/* The index of dst of `size` that sees an index of src through a position of the kernel; -1 for none. */
static long tap_back(__global const long *window, int dim, long index, long position, long size)
{
    __global const long *w = window + 4 * (dim - 2);
    long reach = index - position * w[2] + w[3];
    return reach >= 0 && reach % w[1] == 0 && reach / w[1] < size ? reach / w[1] : -1;
}

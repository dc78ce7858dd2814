/* Behind the text of a user's kernel: calls it with places in buffers and with literal numbers. */
__kernel void poolrt_call(POOLRT_PARAMETERS)
{
    POOLRT_FUNCTION(POOLRT_ARGUMENTS);
}

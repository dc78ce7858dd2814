/* What a kernel finds in memory that nothing has written: numbers below 2**-126, and whether it has computed with them. */

#include <immintrin.h>
#include <stdint.h>

enum { NUMBERS = 64 * 1024, SMALL = 0x00012345, DENORMAL = 2, ALL = 0x3f };

/* Leave small numbers on the stack, where functions that are called next have their memory. */
__attribute__((noinline)) void leave_small_numbers(void) {
    volatile uint32_t found[NUMBERS];
    for (int i = 0; i < NUMBERS; i++) found[i] = SMALL;
    (void)found[0];
}

void forget_flags(void) { _mm_setcsr(_mm_getcsr() & ~(unsigned)ALL); }

int has_met_small_numbers(void) { return (_mm_getcsr() & DENORMAL) != 0; }

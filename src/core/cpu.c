/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cpu.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <stdatomic.h>
#include <stdint.h>

#define CPU_KNOWN 1u
#define CPU_AVX2 2u
#define CPU_FAST_STRINGS 4u
#define VECTORS_SAVED 6u /* of 16 and of 32 bytes */
#define ERMS_BIT (1u << 9)

/* What the kernel saves of the vector registers. */
static uint64_t saved_state(void)
{
    uint32_t low;
    uint32_t high;
    __asm__ __volatile__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* Asked of the processor itself: what the compiler offers for it puts a constructor into the library. */
static uint32_t ask(void)
{
    uint32_t a;
    uint32_t b;
    uint32_t c;
    uint32_t d;
    uint32_t features = CPU_KNOWN;
    bool has_saved = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_OSXSAVE) != 0 &&
                     (saved_state() & VECTORS_SAVED) == VECTORS_SAVED;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
        features |= has_saved && (b & bit_AVX2) != 0 ? CPU_AVX2 : 0;
        features |= (b & ERMS_BIT) != 0 ? CPU_FAST_STRINGS : 0;
    }
    return features;
}

static bool has(uint32_t feature)
{
    static _Atomic uint32_t known; /* of the machine; two threads that ask at once get the same answer */
    uint32_t features = atomic_load_explicit(&known, memory_order_relaxed);
    if (features == 0) {
        features = ask();
        atomic_store_explicit(&known, features, memory_order_relaxed);
    }
    return (features & feature) != 0;
}

bool convoy_cpu_has_avx2(void)
{
    return has(CPU_AVX2);
}

bool convoy_cpu_has_fast_strings(void)
{
    return has(CPU_FAST_STRINGS);
}

#else

bool convoy_cpu_has_avx2(void)
{
    return false;
}

bool convoy_cpu_has_fast_strings(void)
{
    return false;
}

#endif

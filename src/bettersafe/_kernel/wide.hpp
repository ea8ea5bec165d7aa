// If the compiler supports it, functions with this mark are also built for AVX2 and selected at load time. Only element-wise loops use
// it and nothing is fused (-ffp-contract=off), so the bits are equal.
#pragma once

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define BETTERSAFE_WIDE __attribute__((flatten, target_clones("avx2", "default")))
#else
#define BETTERSAFE_WIDE
#endif

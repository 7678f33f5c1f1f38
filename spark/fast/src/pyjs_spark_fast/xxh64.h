/* XXH64, written from its published specification (github.com/Cyan4973/xxHash, doc/xxhash_spec.md).
 *
 * Little-endian machines only, as the store's format; tests compare it with the xxhash package.
 */
#ifndef PYJS_XXH64_H
#define PYJS_XXH64_H

#include <stdint.h>
#include <string.h>

#define XXH_P1 0x9E3779B185EBCA87ull
#define XXH_P2 0xC2B2AE3D27D4EB4Full
#define XXH_P3 0x165667B19E3779F9ull
#define XXH_P4 0x85EBCA77C2B2AE63ull
#define XXH_P5 0x27D4EB2F165667C5ull

static inline uint64_t xxh_rotl(uint64_t v, int r) { return (v << r) | (v >> (64 - r)); }

static inline uint64_t xxh_load64(const unsigned char *p) { uint64_t v; memcpy(&v, p, 8); return v; }

static inline uint32_t xxh_load32(const unsigned char *p) { uint32_t v; memcpy(&v, p, 4); return v; }

static inline uint64_t xxh_round(uint64_t acc, uint64_t lane) {
    return xxh_rotl(acc + lane * XXH_P2, 31) * XXH_P1;
}

static inline uint64_t xxh_merge(uint64_t acc, uint64_t lane_acc) {
    return (acc ^ xxh_round(0, lane_acc)) * XXH_P1 + XXH_P4;
}

static inline uint64_t pyjs_xxh64(const void *data, size_t n, uint64_t seed) {
    const unsigned char *p = (const unsigned char *)data, *end = p + n;
    uint64_t acc;
    if (n >= 32) {
        uint64_t a = seed + XXH_P1 + XXH_P2, b = seed + XXH_P2, c = seed, d = seed - XXH_P1;
        do {
            a = xxh_round(a, xxh_load64(p));
            b = xxh_round(b, xxh_load64(p + 8));
            c = xxh_round(c, xxh_load64(p + 16));
            d = xxh_round(d, xxh_load64(p + 24));
            p += 32;
        } while (p + 32 <= end);
        acc = xxh_rotl(a, 1) + xxh_rotl(b, 7) + xxh_rotl(c, 12) + xxh_rotl(d, 18);
        acc = xxh_merge(acc, a);
        acc = xxh_merge(acc, b);
        acc = xxh_merge(acc, c);
        acc = xxh_merge(acc, d);
    } else {
        acc = seed + XXH_P5;
    }
    acc += (uint64_t)n;
    while (p + 8 <= end) {
        acc = xxh_rotl(acc ^ xxh_round(0, xxh_load64(p)), 27) * XXH_P1 + XXH_P4;
        p += 8;
    }
    if (p + 4 <= end) {
        acc = xxh_rotl(acc ^ (xxh_load32(p) * XXH_P1), 23) * XXH_P2 + XXH_P3;
        p += 4;
    }
    while (p < end) {
        acc = xxh_rotl(acc ^ (*p * XXH_P5), 11) * XXH_P1;
        p++;
    }
    acc ^= acc >> 33;
    acc *= XXH_P2;
    acc ^= acc >> 29;
    acc *= XXH_P3;
    return acc ^ (acc >> 32);
}

#endif

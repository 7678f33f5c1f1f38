/* Small C helpers of the message path: a seeded 64-bit hash of short keys, decimal digits, and the end of a token.
 *
 * The hash multiplies 64x64 -> 128 bits and folds the result (the "mum" step known from wyhash). It is used only for
 * tables in memory, never stored. If one factor is zero, the product does not depend on the other one. So each factor
 * is mixed with a secret: clients, which choose the keys, must not be able to make a factor zero.
 */
#ifndef PYJS_FAST_H
#define PYJS_FAST_H

#include <stdint.h>
#include <string.h>

static inline uint64_t pyjs_mum(uint64_t a, uint64_t b) {
    __uint128_t r = (__uint128_t)a * b;
    return (uint64_t)r ^ (uint64_t)(r >> 64);
}

static inline uint64_t pyjs_read8(const char *p) { uint64_t v; memcpy(&v, p, 8); return v; }
static inline uint64_t pyjs_read4(const char *p) { uint32_t v; memcpy(&v, p, 4); return v; }

static inline uint64_t pyjs_hash(const char *p, size_t n, uint64_t s0, uint64_t s1) {
    uint64_t h = s0, a = 0, b = 0;
    size_t left = n;
    while (left > 16) {
        h = pyjs_mum(pyjs_read8(p) ^ s1, pyjs_read8(p + 8) ^ h);
        p += 16;
        left -= 16;
    }
    if (left >= 8) {
        a = pyjs_read8(p);
        b = pyjs_read8(p + left - 8);
    } else if (left >= 4) {
        a = pyjs_read4(p);
        b = pyjs_read4(p + left - 4);
    } else if (left) {
        a = ((uint64_t)(unsigned char)p[0] << 16) | ((uint64_t)(unsigned char)p[left >> 1] << 8) |
            (unsigned char)p[left - 1];
    }
    return pyjs_mum(s1 ^ n, pyjs_mum(a ^ s1, b ^ h));
}

/* "00" to "99", so that one division gives two digits. */
static const char pyjs_pairs[] =
    "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
    "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
    "8081828384858687888990919293949596979899";

/* Write the eight digits of `v` < 10^8 at `out`, leading zeros included. */
static inline void pyjs_eight_digits(char *out, uint32_t v) {
    uint32_t high = v / 10000, low = v % 10000;
    memcpy(out, pyjs_pairs + 2 * (high / 100), 2);
    memcpy(out + 2, pyjs_pairs + 2 * (high % 100), 2);
    memcpy(out + 4, pyjs_pairs + 2 * (low / 100), 2);
    memcpy(out + 6, pyjs_pairs + 2 * (low % 100), 2);
}

/* Write `v` in decimal at `out` (room for 20 bytes); return the number of digits. */
static inline int pyjs_digits(char *out, uint64_t v) {
    char tmp[20];
    char *p = tmp + 20;
    while (v >= 100000000) { /* such as a timestamp: groups of eight digits can be computed in parallel */
        p -= 8;
        pyjs_eight_digits(p, (uint32_t)(v % 100000000));
        v /= 100000000;
    }
    while (v >= 100) {
        p -= 2;
        memcpy(p, pyjs_pairs + 2 * (v % 100), 2);
        v /= 100;
    }
    if (v >= 10) {
        p -= 2;
        memcpy(p, pyjs_pairs + 2 * v, 2);
    } else {
        *--p = (char)('0' + v);
    }
    memcpy(out, p, (size_t)(tmp + 20 - p));
    return (int)(tmp + 20 - p);
}

/* Return the index of the first byte below '!' (blank, line end, control character) at or after p[i], or n if none.
 *
 * Examines eight bytes at a time: the subtraction sets the high bit of a byte that is below '!'. The bits of bytes
 * after the first such byte may be wrong; that of the first one is right.
 */
static inline size_t pyjs_below_graphic(const char *p, size_t n, size_t i) {
    for (; i + 8 <= n; i += 8) {
        uint64_t v = pyjs_read8(p + i);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        v = __builtin_bswap64(v);
#endif
        v = (v - 0x2121212121212121u) & ~v & 0x8080808080808080u;
        if (v)
            return i + ((size_t)__builtin_ctzll(v) >> 3);
    }
    while (i < n && (unsigned char)p[i] > ' ')
        i++;
    return i;
}

#endif

/* Small helpers that know nothing of NATS: time, failure, random tokens, numbers in text. */
#include "util.h"

#include "meter.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char ALPHABET[65] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";

/* Multiplying by an odd number is a bijection of the 48 bit numbers; the second undoes the first. */
#define TOKEN_MASK ((1ULL << 48) - 1)
#define SCRAMBLE 0x9E3779B97F4BULL

int64_t now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

void fail(const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    meter_fail(text);
    exit(1);
}

void *must_alloc(size_t size) {
    void *memory = calloc(1, size ? size : 1);
    if (!memory)
        fail("no memory for %zu bytes", size);
    return memory;
}

uint64_t random_u64(void) {
    static uint64_t state;
    if (!state)
        state = (uint64_t)now_ns() ^ ((uint64_t)getpid() << 40) ^ 0x2545F4914F6CDD1DULL;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

void inbox_make(char *out) {
    memcpy(out, "_INBOX.", 7);
    for (int i = 7; i < INBOX_LEN; i++)
        out[i] = ALPHABET[random_u64() % 62];
}

static uint64_t scramble_inverse(void) {
    uint64_t inverse = SCRAMBLE; /* Newton: each step doubles the number of right bits */
    for (int i = 0; i < 6; i++)
        inverse *= 2 - SCRAMBLE * inverse;
    return inverse & TOKEN_MASK;
}

void token_write(char *out, uint64_t index) {
    uint64_t mixed = (index * SCRAMBLE) & TOKEN_MASK;
    for (int i = 0; i < TOKEN_LEN; i++, mixed >>= 6)
        out[i] = ALPHABET[mixed & 63];
}

uint64_t token_read(const char *text, size_t len) {
    static int8_t value_of[256];
    static uint64_t inverse;
    if (!inverse) {
        memset(value_of, -1, sizeof value_of);
        for (int i = 0; i < 64; i++)
            value_of[(unsigned char)ALPHABET[i]] = (int8_t)i;
        inverse = scramble_inverse();
    }
    if (len != TOKEN_LEN)
        return UINT64_MAX;
    uint64_t mixed = 0;
    for (int i = TOKEN_LEN - 1; i >= 0; i--) {
        int8_t value = value_of[(unsigned char)text[i]];
        if (value < 0)
            return UINT64_MAX;
        mixed = mixed << 6 | (uint64_t)value;
    }
    return (mixed * inverse) & TOKEN_MASK;
}

int64_t digits_read(const char **at, const char *end) {
    const char *p = *at;
    int64_t value = 0;
    while (p < end && *p >= '0' && *p <= '9')
        value = value * 10 + (*p++ - '0');
    if (p == *at)
        return -1;
    *at = p;
    return value;
}

size_t digits_write(char *out, uint64_t value) {
    char reversed[20];
    size_t n = 0;
    do
        reversed[n++] = (char)('0' + value % 10);
    while (value /= 10);
    for (size_t i = 0; i < n; i++)
        out[i] = reversed[n - 1 - i];
    return n;
}

int64_t json_number(const char *from, const char *key) {
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = from ? strstr(from, quoted) : NULL;
    if (!at)
        return -1;
    at += strlen(quoted);
    while (*at == ' ')
        at++;
    return digits_read(&at, at + strlen(at));
}

void seen_init(struct seen *seen, uint64_t size) {
    seen->words = must_alloc((size / 64 + 1) * sizeof(uint64_t));
    seen->size = size;
    seen->count = 0;
}

bool seen_mark(struct seen *seen, uint64_t item) {
    if (item >= seen->size)
        return false;
    uint64_t bit = 1ULL << (item & 63);
    if (seen->words[item / 64] & bit)
        return false;
    seen->words[item / 64] |= bit;
    seen->count++;
    return true;
}

size_t fresh_subject(char *out, size_t size, const char *prefix) {
    return (size_t)snprintf(out, size, "%s.%08x.%0*d", prefix, (unsigned)random_u64(), FRESH_DIGITS, 0);
}

void fresh_number(char *out, uint64_t value) {
    for (size_t i = FRESH_DIGITS; i--; value /= 10)
        out[i] = (char)('0' + value % 10);
}

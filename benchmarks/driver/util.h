/* Small helpers that know nothing of NATS: time, failure, random tokens, numbers in text. */
#ifndef UTIL_H
#define UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOKEN_LEN 8   /* characters of an encoded token: 48 bits, 6 in each */
#define INBOX_LEN 29  /* "_INBOX." and 22 random characters */

int64_t now_ns(void);

/* Print the result line with "verified": false and this text, and leave with status 1. */
void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

void *must_alloc(size_t size);
uint64_t random_u64(void);

/* Write "_INBOX.<22 random characters>" to `out`, INBOX_LEN bytes and no NUL. */
void inbox_make(char *out);

/* A token is `index` scrambled, as the random reply tokens of client libraries look. */
void token_write(char *out, uint64_t index);
/* Return the index after a token, or UINT64_MAX when the text is not one. */
uint64_t token_read(const char *text, size_t len);

/* Write "<prefix>.<8 random characters>.<zeros>" to `out` with FRESH_DIGITS zeros; return its length. A message puts
 * its number over the zeros (fresh_number), so that no run repeats the subject of another. */
#define FRESH_DIGITS 9
size_t fresh_subject(char *out, size_t size, const char *prefix);
/* Write `value` to the FRESH_DIGITS characters at `out`. */
void fresh_number(char *out, uint64_t value);

/* Read decimal digits from `*at` up to `end` and move `*at` after them; -1 when there are none. */
int64_t digits_read(const char **at, const char *end);
/* Write `value` in decimal and return the number of characters. */
size_t digits_write(char *out, uint64_t value);

/* Return the number behind `"key":` at or after `from`, or -1. */
int64_t json_number(const char *from, const char *key);

/* A bit per item, to see that each comes exactly once. */
struct seen {
    uint64_t *words;
    uint64_t size;   /* items 0..size-1 */
    uint64_t count;  /* items marked so far */
};

void seen_init(struct seen *seen, uint64_t size);
/* Mark an item; false when it is out of range or was marked before. */
bool seen_mark(struct seen *seen, uint64_t item);

#endif

/* The content of every message: who sent it, its number, and bytes that depend on the number. */
#include "payload.h"

#include "util.h"

#include <string.h>

static char *table; /* size_max + 256 bytes of fixed noise */

void payload_init(uint32_t size_max) {
    uint32_t state = 12345;
    table = must_alloc(size_max + 256);
    for (uint32_t i = 0; i < size_max + 256; i++) {
        state = state * 1664525 + 1013904223;
        table[i] = (char)(state >> 24);
    }
}

void payload_write(char *out, uint32_t size, uint32_t publisher, uint64_t index) {
    memcpy(out, &publisher, 4);
    memcpy(out + 4, &size, 4);
    memcpy(out + 8, &index, 8);
    memcpy(out + PAYLOAD_MIN, table + (index & 255), size - PAYLOAD_MIN);
}

bool payload_read(const char *data, uint32_t size, uint32_t *publisher, uint64_t *index) {
    uint32_t size_told;
    if (size < PAYLOAD_MIN)
        return false;
    memcpy(publisher, data, 4);
    memcpy(&size_told, data + 4, 4);
    memcpy(index, data + 8, 8);
    return size_told == size && memcmp(data + PAYLOAD_MIN, table + (*index & 255), size - PAYLOAD_MIN) == 0;
}

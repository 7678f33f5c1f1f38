/* permessage-deflate by zlib where its headers are (driver_build.py says so); no message needs the one before. */
#include "packing.h"

#include "util.h"

#ifdef NATSLOAD_ZLIB
#include <string.h>
#include <zlib.h>

#define TAIL_SIZE 4     /* what a flush ends with; it is not sent */
static const char TAIL[] = {0, 0, (char)0xff, (char)0xff};

struct packing {
    z_stream deflating, inflating;
    size_t tail_used;
};

struct packing *packing_new(void) {
    struct packing *packing = must_alloc(sizeof *packing);
    if (deflateInit2(&packing->deflating, Z_BEST_SPEED, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK ||
        inflateInit2(&packing->inflating, -MAX_WBITS) != Z_OK)
        fail("zlib: no memory");
    return packing;
}

size_t packing_deflate(struct packing *packing, const char *data, size_t size, char *out, size_t room) {
    z_stream *z = &packing->deflating;
    z->next_in = (unsigned char *)data;
    z->avail_in = (unsigned)size;
    z->next_out = (unsigned char *)out;
    z->avail_out = (unsigned)room;
    if (deflateReset(z) != Z_OK || deflate(z, Z_SYNC_FLUSH) != Z_OK || z->avail_in || !z->avail_out)
        fail("zlib: a message of %zu bytes is not compressed", size);
    return room - z->avail_out - TAIL_SIZE;
}

size_t packing_inflate(struct packing *packing, const char *data, size_t *used, char *out, size_t room) {
    z_stream *z = &packing->inflating;
    z->next_in = (unsigned char *)data;
    z->avail_in = (unsigned)*used;
    z->next_out = (unsigned char *)out;
    z->avail_out = (unsigned)room;
    int result = inflate(z, Z_SYNC_FLUSH);
    if (result != Z_OK && result != Z_BUF_ERROR && result != Z_STREAM_END)
        fail("a compressed message is damaged: %s", z->msg ? z->msg : "no reason");
    *used -= z->avail_in;
    return room - z->avail_out;
}

size_t packing_end(struct packing *packing, char *out, size_t room) {
    size_t used = TAIL_SIZE - packing->tail_used;
    size_t made = packing_inflate(packing, TAIL + packing->tail_used, &used, out, room);
    packing->tail_used += used;
    if (made < room) {
        packing->tail_used = 0;
        inflateReset(&packing->inflating);
    }
    return made;
}

#else

struct packing *packing_new(void) {
    fail("the driver was built without zlib: install its headers (zlib1g-dev) and remove build/benchmarks");
}

size_t packing_deflate(struct packing *packing, const char *data, size_t size, char *out, size_t room) {
    (void)packing, (void)data, (void)size, (void)out, (void)room;
    return 0;
}

size_t packing_inflate(struct packing *packing, const char *data, size_t *used, char *out, size_t room) {
    (void)packing, (void)data, (void)used, (void)out, (void)room;
    return 0;
}

size_t packing_end(struct packing *packing, char *out, size_t room) {
    (void)packing, (void)out, (void)room;
    return 0;
}
#endif

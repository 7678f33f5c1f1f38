/* permessage-deflate by zlib where its headers are (driver_build.py says so); no message needs the one before. */
#ifndef PACKING_H
#define PACKING_H

#include <stddef.h>

struct packing;

/* Fails the run if the driver was built without zlib. */
struct packing *packing_new(void);
/* Compress one message into `out`; return its size. */
size_t packing_deflate(struct packing *packing, const char *data, size_t size, char *out, size_t room);
/* Inflate a part of a message; `used` is set to the bytes that were taken. Returns the bytes written. */
size_t packing_inflate(struct packing *packing, const char *data, size_t *used, char *out, size_t room);
/* Inflate the end of a message; it is over when less than `room` is returned. */
size_t packing_end(struct packing *packing, char *out, size_t room);

#endif

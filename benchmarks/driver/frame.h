/* One operation as the server sends it, cut out of the receive buffer in place.
 *
 * Knows no sockets. Every pointer is a view into the buffer and dies with the next read.
 * Source: NATS client protocol, "INFO, MSG, HMSG, PING, PONG, +OK, -ERR".
 */
#ifndef FRAME_H
#define FRAME_H

#include <stdint.h>
#include <stddef.h>

enum op { OP_MORE, OP_MSG, OP_PING, OP_PONG, OP_OK, OP_ERR, OP_INFO, OP_BAD };

struct frame {
    enum op op;
    const char *line;     /* the control line without CRLF */
    const char *subject;
    const char *reply;    /* NULL: none */
    const char *header;   /* NULL: a plain MSG */
    const char *payload;  /* after the header block */
    uint32_t line_len, subject_len, reply_len, header_len, payload_len;
    uint32_t sid;
    size_t missing;       /* with OP_MORE: so many bytes at least are still to come */
};

/* Cut the first operation of `n` bytes; return its length, or 0 with OP_MORE or OP_BAD. */
size_t frame_cut(const char *data, size_t n, struct frame *frame);

#endif

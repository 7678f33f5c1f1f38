/* Connections to the server and the one epoll loop that drives them.
 *
 * A connection has a role: what it does with a message and when it may send more. Input is cut up in
 * place; output is built in bulk and leaves with as few send() calls as the socket takes. Any -ERR,
 * a closed connection or silence for the timeout ends the run as not verified.
 */
#ifndef CONN_H
#define CONN_H

#include "channel.h"
#include "frame.h"
#include "options.h"
#include "util.h"

struct conn;

struct role {
    void (*on_msg)(struct conn *conn, const struct frame *frame);  /* NULL: a message is a failure */
    /* After each read and whenever all output has left: build more output, or do nothing. */
    void (*on_turn)(struct conn *conn);
};

struct conn {
    int fd;
    struct channel *channel;
    const struct role *role;
    void *state;            /* of the role */
    bool active;            /* on_turn is called only then */
    bool hungry;            /* set by on_turn: call again as soon as the socket takes more */
    bool pong;              /* a PONG came; cleared by whoever waits for one */
    bool greeted;           /* INFO came, and is kept for CONNECT */
    bool unsent;            /* the channel holds frames that the socket did not take */
    char *info;
    size_t info_len;
    uint32_t events;        /* what epoll watches */
    char inbox[INBOX_LEN + 1];
    char *in;
    size_t in_size, in_start, in_end;
    int least;              /* bytes that make epoll report input, 0: as it was made */
    char *out;
    size_t out_size, out_start, out_end;
    const char *loan;       /* bytes of someone else that follow `out` */
    size_t loan_len;
};

/* Connect and finish the handshake. */
struct conn *conn_open(const struct options *options, const struct role *role, void *state);

/* Return room for `size` bytes at the end of the output; conn_add says how many were written. */
char *conn_room(struct conn *conn, size_t size);
void conn_add(struct conn *conn, size_t size);
void conn_print(struct conn *conn, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Send `data` after the output without a copy; it must live until conn_idle. */
void conn_lend(struct conn *conn, const char *data, size_t size);
/* True when everything has left. */
bool conn_idle(const struct conn *conn);

/* Subscribe to "<inbox>.*" with sid 1. */
void conn_subscribe_inbox(struct conn *conn);
/* Send PING and run the loop until the PONG is there. */
void conn_fence(struct conn *conn);
/* Let the role build output now, and send. */
void conn_turn(struct conn *conn);
/* The token behind "<inbox>.", or UINT64_MAX when the subject is another. */
uint64_t conn_token(const struct conn *conn, const struct frame *frame);

/* Run all connections until `*done`. */
void loop_until(const bool *done);

#endif

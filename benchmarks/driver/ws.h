/* A WebSocket client: the upgrade, masked frames out, frames of the server in, permessage-deflate.
 *
 * Output becomes one message of at most 32 KiB for each write, as the Go client does; each is compressed by itself.
 * Source: RFC 6455, RFC 7692.
 */
#ifndef WS_H
#define WS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct ws;

/* The stream below, with the contract of channel_send and channel_read. */
struct ws_below {
    void *state;
    int fd;
    size_t (*send)(void *state, const char *data, size_t size);
    ssize_t (*read)(void *state, char *data, size_t size);
};

/* Upgrade the connection; fails the run if the server refuses it, or `deflate` without zlib. */
struct ws *ws_open(const struct ws_below *below, bool deflate, int timeout_ms);
size_t ws_send(struct ws *ws, const char *data, size_t size);
/* Send frames that were made earlier; true when none is left. */
bool ws_flush(struct ws *ws);
ssize_t ws_read(struct ws *ws, char *data, size_t size);
bool ws_holds(const struct ws *ws);

#endif

/* The bytes of one connection to the server: plain, under TLS, and as WebSocket frames inside either. */
#ifndef CHANNEL_H
#define CHANNEL_H

#include "options.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct channel;

/* Connect a TCP socket; it blocks until someone makes it non-blocking. */
int dial(const struct options *options);

/* Connect, and finish the handshakes that the options ask for. */
struct channel *channel_open(const struct options *options);
void channel_close(struct channel *channel);
int channel_fd(const struct channel *channel);
/* Return how many bytes were taken, 0 when the socket is full. */
size_t channel_send(struct channel *channel, const char *data, size_t size);
/* Send frames that were made earlier; true when none is left. */
bool channel_sent(struct channel *channel);
/* Return how many bytes were read, 0 at the end of the stream, -1 with errno EAGAIN when there are none. */
ssize_t channel_read(struct channel *channel, char *data, size_t size);
/* True while bytes wait that raise no event. */
bool channel_holds(const struct channel *channel);
/* True when a read returns what the socket got, so that the socket may wait for whole messages. */
bool channel_is_plain(const struct channel *channel);

#endif

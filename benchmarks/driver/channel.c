/* The bytes of one connection to the server: plain, under TLS, and as WebSocket frames inside either. */
#include "channel.h"

#include "tls.h"
#include "util.h"
#include "ws.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct channel {
    int fd;
    struct tls *tls;        /* NULL: plain */
    struct ws *ws;          /* NULL: no WebSocket */
};

int dial(const struct options *o) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)o->port)};
    int on = 1;
    if (inet_pton(AF_INET, o->host, &address.sin_addr) != 1)
        fail("--host %s: an IPv4 address is needed", o->host);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        fail("connect to %s:%d: %s", o->host, o->port, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static size_t raw_send(void *state, const char *data, size_t size) {
    struct channel *channel = state;
    if (channel->tls)
        return tls_send(channel->tls, data, size);
    ssize_t n = send(channel->fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0)
        return (size_t)n;
    if (errno != EAGAIN && errno != EINTR)
        fail("send: %s", strerror(errno));
    return 0;
}

static ssize_t raw_read(void *state, char *data, size_t size) {
    struct channel *channel = state;
    return channel->tls ? tls_read(channel->tls, data, size) : recv(channel->fd, data, size, MSG_DONTWAIT);
}

struct channel *channel_open(const struct options *o) {
    struct channel *channel = must_alloc(sizeof *channel);
    channel->fd = dial(o);
    if (o->tls)
        channel->tls = tls_open(channel->fd, !o->ws, o->timeout_s * 1000);
    if (o->ws)
        channel->ws = ws_open(&(struct ws_below){channel, channel->fd, raw_send, raw_read}, o->deflate,
                              o->timeout_s * 1000);
    return channel;
}

void channel_close(struct channel *channel) {
    if (channel->tls)
        tls_free(channel->tls);
    close(channel->fd);
    free(channel->ws);
    free(channel);
}

int channel_fd(const struct channel *channel) { return channel->fd; }

size_t channel_send(struct channel *channel, const char *data, size_t size) {
    return channel->ws ? ws_send(channel->ws, data, size) : raw_send(channel, data, size);
}

bool channel_sent(struct channel *channel) { return !channel->ws || ws_flush(channel->ws); }

ssize_t channel_read(struct channel *channel, char *data, size_t size) {
    return channel->ws ? ws_read(channel->ws, data, size) : raw_read(channel, data, size);
}

bool channel_holds(const struct channel *channel) {
    return (channel->ws && ws_holds(channel->ws)) || (channel->tls && tls_holds(channel->tls));
}

bool channel_is_plain(const struct channel *channel) { return !channel->tls && !channel->ws; }

/* TLS of one connection, by OpenSSL where its headers are (driver_build.py says so). */
#include "tls.h"

#include "util.h"

#ifdef NATSLOAD_OPENSSL
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#define INFO_MAX 4096

struct tls {
    SSL *ssl;
};

static SSL_CTX *context(void) {
    static SSL_CTX *made;
    if (!made) {
        made = SSL_CTX_new(TLS_client_method());
        if (!made)
            fail("OpenSSL: no context");
        SSL_CTX_set_verify(made, SSL_VERIFY_NONE, NULL);
        SSL_CTX_set_mode(made, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        SSL_CTX_set_read_ahead(made, 1);
        SSL_CTX_set_default_read_buffer_len(made, 256 * 1024);
    }
    return made;
}

/* Take the INFO line from the socket and nothing behind it. */
static void skip_info(int fd) {
    char line[INFO_MAX];
    for (size_t at = 0; at < sizeof line; at++) {
        if (recv(fd, line + at, 1, 0) != 1)
            fail("no INFO before TLS");
        if (line[at] == '\n')
            return;
    }
    fail("an INFO of more than %d bytes", INFO_MAX);
}

struct tls *tls_open(int fd, bool greets, int timeout_ms) {
    struct tls *tls = must_alloc(sizeof *tls);
    struct timeval limit = {.tv_sec = timeout_ms / 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (greets)
        skip_info(fd);
    tls->ssl = SSL_new(context());
    if (!tls->ssl || SSL_set_fd(tls->ssl, fd) != 1 || SSL_connect(tls->ssl) != 1)
        fail("TLS handshake: %s", ERR_reason_error_string(ERR_get_error()));
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0)
        fail("fcntl: %s", strerror(errno));
    return tls;
}

void tls_free(struct tls *tls) {
    SSL_free(tls->ssl);
    free(tls);
}

/* Return a result of OpenSSL as of send() and recv(). */
static ssize_t result_of(struct tls *tls, int n) {
    if (n > 0)
        return n;
    int reason = SSL_get_error(tls->ssl, n);
    if (reason == SSL_ERROR_ZERO_RETURN || (reason == SSL_ERROR_SYSCALL && errno == 0))
        return 0;
    if (reason != SSL_ERROR_WANT_READ && reason != SSL_ERROR_WANT_WRITE)
        fail("TLS: %s", ERR_reason_error_string(ERR_get_error()));
    errno = EAGAIN;
    return -1;
}

size_t tls_send(struct tls *tls, const char *data, size_t size) {
    size_t sent = 0;
    while (sent < size) {
        size_t piece = size - sent > INT_MAX ? INT_MAX : size - sent;
        ssize_t n = result_of(tls, SSL_write(tls->ssl, data + sent, (int)piece));
        if (n == 0)
            fail("the server closed the connection");
        if (n < 0)
            break;
        sent += (size_t)n;
    }
    return sent;
}

ssize_t tls_read(struct tls *tls, char *data, size_t size) {
    return result_of(tls, SSL_read(tls->ssl, data, size > INT_MAX ? INT_MAX : (int)size));
}

bool tls_holds(const struct tls *tls) { return SSL_has_pending(tls->ssl) == 1; }

#else

struct tls {
    int nothing;
};

struct tls *tls_open(int fd, bool greets, int timeout_ms) {
    (void)fd, (void)greets, (void)timeout_ms;
    fail("the driver was built without OpenSSL: install its headers (libssl-dev) and remove build/benchmarks");
}

void tls_free(struct tls *tls) { (void)tls; }

size_t tls_send(struct tls *tls, const char *data, size_t size) {
    (void)tls, (void)data;
    return size;
}

ssize_t tls_read(struct tls *tls, char *data, size_t size) {
    (void)tls, (void)data, (void)size;
    return 0;
}

bool tls_holds(const struct tls *tls) {
    (void)tls;
    return false;
}
#endif

/* TLS of one connection, after the INFO of the server. Certificates are not checked: servers make their own. */
#ifndef TLS_H
#define TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct tls;

/* Read INFO if the server `greets`, finish the handshake, and leave `fd` non-blocking. Fails the run if the driver was built without OpenSSL. */
struct tls *tls_open(int fd, bool greets, int timeout_ms);
void tls_free(struct tls *tls);
/* Return how many bytes were taken, 0 when the socket is full. */
size_t tls_send(struct tls *tls, const char *data, size_t size);
/* Return how many bytes were read, 0 at the end of the stream, -1 with errno EAGAIN when there are none. */
ssize_t tls_read(struct tls *tls, char *data, size_t size);
/* True while decrypted bytes wait. */
bool tls_holds(const struct tls *tls);

#endif

/* The CONNECT of a client: without a user, with name and password, or with credentials (a token and a seed). */
#ifndef LOGIN_H
#define LOGIN_H

#include "options.h"

#include <stddef.h>

#define CONNECT_MAX 8192

/* Write the CONNECT line to `out`, which has CONNECT_MAX bytes; `info` is the INFO line, used with credentials only. */
size_t connect_line(const struct options *options, const char *info, size_t info_len, char *out);

#endif

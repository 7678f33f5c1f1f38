/* The few JetStream API calls that a run needs for its set-up and its last check, one at a time.
 *
 * Source: NATS JetStream API reference (STREAM.CREATE/DELETE/INFO, CONSUMER.CREATE/INFO).
 */
#ifndef JSAPI_H
#define JSAPI_H

#include "options.h"

#include <stdint.h>

#define STREAM "NATSLOAD"        /* its subjects are "load.>" */
#define COPY "NATSLOAD_COPY"     /* copies from it */
#define CONSUMER "READER"

/* Create the stream empty, deleting what an earlier run left. */
void js_stream_create(const struct options *options);
/* Fail unless the stream holds exactly the messages 1..count. */
void js_stream_check(const struct options *options, uint64_t count);
void js_stream_delete(const struct options *options);
/* Make the stream that copies; `how` is the member of its configuration that says from where. */
void js_copy_create(const struct options *options, const char *how);
void js_copy_delete(const struct options *options);
uint64_t js_copy_count(const struct options *options);
void js_copy_check(const struct options *options, uint64_t count);
void js_consumer_create(const struct options *options, bool ack);
/* Fail unless everything up to `count` was delivered once and, with `ack`, acknowledged. */
void js_consumer_check(const struct options *options, uint64_t count, bool ack);

#endif

/* JetStream publishing with acknowledgements, for jspub, jssync and to fill a stream for readers. */
#ifndef JSPUBLISH_H
#define JSPUBLISH_H

#include "options.h"

#include <stddef.h>
#include <stdint.h>

/* The subject of message `index` when there are `subjects` of them: "load.a" or "load.<8 digits>". */
int js_subject(char *out, size_t size, uint32_t subjects, uint64_t index);

/* Publish `msgs` messages into the stream and wait for every ack.
 *
 * Each of `publishers` connections keeps `window` messages without ack. Each publish has its own reply
 * token, as client libraries do. Verified: each token is answered once, each stream sequence 1..msgs
 * is given once, sequences rise with the messages of one publisher, nothing is called a duplicate.
 * Error replies are counted. With `measured` the meter runs, with a window of 1 it takes latencies.
 */
void js_publish(const struct options *options, int publishers, uint64_t window, uint64_t msgs, bool measured);

#endif

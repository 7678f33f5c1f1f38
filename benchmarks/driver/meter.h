/* What one run costs: wall time, CPU of the server and of this driver, peak RSS, latencies; and the
 * one JSON line that reports it.
 *
 * The server's CPU is its process clock (nanoseconds, all threads); its peak RSS is VmHWM, reset when
 * the measured part starts; its disk bytes are what it made the page cache hold for files. Set-up before meter_start and checks after meter_stop do not count.
 */
#ifndef METER_H
#define METER_H

#include "options.h"

#include <stdint.h>

void meter_init(const struct options *options);
void meter_start(void);
void meter_stop(void);

/* Keep up to `count` latencies; more than that is a mistake of the caller. */
void meter_latencies(uint64_t count);
void meter_latency(int64_t ns);

/* Count an error reply; the text of the first one is reported. The run goes on but is not verified. */
void meter_error(const char *text, uint32_t len);

/* Print the result line of a run of `msgs` messages with `bytes` of payload; return the exit status. */
int meter_report(uint64_t msgs, uint64_t bytes);
/* Print the result line of a run that could not be verified. */
void meter_fail(const char *text);

#endif

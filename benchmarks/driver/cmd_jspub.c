/* jspub and jssync: JetStream publishes into one stream, see jspublish.h for what is verified.
 *
 * jspub keeps --window messages without ack on each of --publishers connections; jssync has one
 * outstanding message on each of --connections and reports latencies. The stream is made by the run,
 * and at the end it must hold exactly the acked messages.
 */
#include "commands.h"
#include "jsapi.h"
#include "jspublish.h"
#include "meter.h"

static int publish(const struct options *o, int publishers, uint64_t window) {
    js_stream_create(o);
    js_publish(o, publishers, window, o->msgs, true);
    if (!o->keep)
        js_stream_delete(o);
    return meter_report(o->msgs, o->msgs * o->size);
}

int cmd_jspub(const struct options *o) { return publish(o, o->publishers, o->window ? o->window : 4000); }

int cmd_jssync(const struct options *o) {
    meter_latencies(o->msgs);
    return publish(o, o->connections, 1);
}

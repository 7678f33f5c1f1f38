/* mirror and source: the time until a stream has everything of another one that was filled before.
 *
 * The stream that copies is made when the measurement starts; its state is asked for every few milliseconds.
 * Verified: at the end it holds exactly the messages of its origin.
 */
#include "commands.h"
#include "jsapi.h"
#include "jspublish.h"
#include "meter.h"

#include <time.h>

#define FILL_WINDOW_SIZE (16u << 20)
#define LOOK_NS 2000000

static int copy(const struct options *o, const char *how) {
    uint64_t fill_window = FILL_WINDOW_SIZE / (o->size + 256);
    js_stream_create(o);
    js_copy_delete(o);
    js_publish(o, 1, fill_window < 4000 ? fill_window + 1 : 4000, o->msgs, false);
    meter_start();
    js_copy_create(o, how);
    while (js_copy_count(o) < o->msgs)
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    meter_stop();
    js_copy_check(o, o->msgs);
    if (!o->keep) {
        js_copy_delete(o);
        js_stream_delete(o);
    }
    return meter_report(o->msgs, o->msgs * o->size);
}

int cmd_mirror(const struct options *o) { return copy(o, "\"mirror\":{\"name\":\"" STREAM "\"}"); }

int cmd_source(const struct options *o) { return copy(o, "\"sources\":[{\"name\":\"" STREAM "\"}]"); }

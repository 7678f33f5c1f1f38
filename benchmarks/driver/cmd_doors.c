/* shake and refused: clients that come to the door again and again, each on a new connection.
 *
 * shake: connect, a full TLS handshake (no session is resumed), CONNECT, PING, PONG, leave. refused: log in with a wrong
 * password, and be refused. Each of --connections threads makes one visit after the other; with --rate the visits
 * begin at that many a second, or later when all threads wait. Verified: each visit has the answer that it must have.
 */
#include "channel.h"
#include "commands.h"
#include "login.h"
#include "meter.h"
#include "util.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define HEARD_MAX 8192

static const struct options *opt;
static const char *wanted;
static atomic_ullong begun;
static int64_t first_ns;

/* Read into `heard` until it has the wanted answer. */
static void listen_for(struct channel *channel, char *heard) {
    struct pollfd waited = {.fd = channel_fd(channel), .events = POLLIN};
    size_t len = 0;
    for (heard[0] = 0; !strstr(heard, wanted); heard[len] = 0) {
        ssize_t n = channel_read(channel, heard + len, HEARD_MAX - 1 - len);
        if (n == 0 || len == HEARD_MAX - 1)
            fail("a visitor heard no %s, but %.200s", wanted, heard);
        if (n < 0 && poll(&waited, 1, opt->timeout_s * 1000) == 0)
            fail("a visitor waited %d s for %s", opt->timeout_s, wanted);
        len += n > 0 ? (size_t)n : 0;
    }
}

static void visit(void) {
    char text[CONNECT_MAX + 6], heard[HEARD_MAX];
    struct channel *channel = channel_open(opt);
    size_t len = connect_line(opt, "", 0, text);
    memcpy(text + len, "PING\r\n", 6);
    if (channel_send(channel, text, len + 6) != len + 6)
        fail("the CONNECT of a visitor was not taken");
    listen_for(channel, heard);
    channel_close(channel);
}

static void wait_for_turn(uint64_t number) {
    if (!opt->rate)
        return;
    int64_t at = first_ns + (int64_t)(number * 1000000000 / opt->rate) - now_ns();
    if (at > 0)
        nanosleep(&(struct timespec){.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000}, NULL);
}

static void *visits(void *unused) {
    for (uint64_t number; (number = atomic_fetch_add(&begun, 1)) < opt->msgs;) {
        wait_for_turn(number);
        visit();
    }
    return unused;
}

static int run(const struct options *o, const char *answer) {
    pthread_t *threads = must_alloc((size_t)o->connections * sizeof *threads);
    opt = o;
    wanted = answer;
    if (!o->user)
        visit();    /* what is made once is made */
    meter_start();
    first_ns = now_ns();
    for (int i = 0; i < o->connections; i++)
        if (pthread_create(&threads[i], NULL, visits, NULL) != 0)
            fail("no thread for connection %d", i);
    for (int i = 0; i < o->connections; i++)
        pthread_join(threads[i], NULL);
    meter_stop();
    return meter_report(o->msgs, 0);
}

int cmd_shake(const struct options *o) { return run(o, "PONG\r\n"); }

int cmd_refused(const struct options *o) { return run(o, "-ERR 'Auth"); }

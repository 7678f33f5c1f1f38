/* pubsub: publishers to subscribers of one subject; every subscriber gets every message.
 *
 * Verified by each subscriber: every message of every publisher, in the publisher's order, once, with
 * its whole payload. With --fresh each message has a subject of its own, and they subscribe to all. `msgs` in the result counts deliveries. The publishers stay at most --window
 * messages ahead of the slowest subscriber, so that no server runs into its pending limit.
 */
#include "commands.h"
#include "conn.h"
#include "meter.h"
#include "payload.h"

#include <stdio.h>
#include <string.h>

#define CHUNK_SIZE (128 * 1024)
#define WINDOW_SIZE (4u << 20)

struct publisher {
    struct conn *conn;
    uint32_t number;
    uint64_t next, count;   /* messages 0..next-1 of `count` are sent */
};

struct subscriber {
    struct conn *conn;
    uint64_t received;
    uint64_t *expected;     /* by publisher: index of its next message */
};

static const struct options *opt;
static struct publisher *publishers;
static struct subscriber *subscribers;
static uint64_t window, sent, finished_count;
static bool finished;
static char head[64];
static size_t head_len, fresh_at; /* fresh_at 0: one subject */

static uint64_t slowest(void) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < opt->subscribers; i++)
        least = subscribers[i].received < least ? subscribers[i].received : least;
    return least;
}

static void publish(struct publisher *p, uint64_t count) {
    size_t msg_len = head_len + opt->size + 2;
    char *at = conn_room(p->conn, count * msg_len);
    for (uint64_t i = 0; i < count; i++, at += msg_len) {
        memcpy(at, head, head_len);
        if (fresh_at)
            fresh_number(at + fresh_at, p->next * (uint64_t)opt->publishers + p->number);
        payload_write(at + head_len, opt->size, p->number, p->next++);
        memcpy(at + head_len + opt->size, "\r\n", 2);
    }
    conn_add(p->conn, count * msg_len);
    sent += count;
}

static void publisher_turn(struct conn *conn) {
    struct publisher *p = conn->state;
    uint64_t room = slowest() + window - sent;
    uint64_t chunk = CHUNK_SIZE / (head_len + opt->size + 2) + 1;
    uint64_t count = p->count - p->next;
    if (!conn_idle(conn) || !count || room < (chunk < window / 2 ? chunk : window / 2 + 1))
        return; /* a subscriber's turn calls again; tiny chunks would cost system calls */
    count = count < chunk ? count : chunk;
    publish(p, count < room ? count : room);
    conn->hungry = p->next < p->count;
}

static void subscriber_msg(struct conn *conn, const struct frame *f) {
    struct subscriber *s = conn->state;
    uint32_t number;
    uint64_t index;
    if (f->payload_len != opt->size || !payload_read(f->payload, f->payload_len, &number, &index))
        fail("subscriber got a damaged payload: %.*s", (int)f->line_len, f->line);
    if (number >= (uint32_t)opt->publishers || index != s->expected[number])
        fail("subscriber got message %llu of publisher %u, expected %llu", (unsigned long long)index, number,
             (unsigned long long)(number < (uint32_t)opt->publishers ? s->expected[number] : 0));
    s->expected[number]++;
    if (++s->received == opt->msgs && ++finished_count == (uint64_t)opt->subscribers)
        finished = true;
}

static void subscriber_turn(struct conn *conn) {
    (void)conn;
    if (sent < opt->msgs)
        for (int i = 0; i < opt->publishers; i++)
            conn_turn(publishers[i].conn);
}

static const struct role PUBLISHER = {.on_turn = publisher_turn};
static const struct role SUBSCRIBER = {.on_msg = subscriber_msg, .on_turn = subscriber_turn};

static void open_all(void) {
    publishers = must_alloc((size_t)opt->publishers * sizeof *publishers);
    subscribers = must_alloc((size_t)opt->subscribers * sizeof *subscribers);
    struct options far = options_far(opt);
    for (int i = 0; i < opt->subscribers; i++) {
        struct subscriber *s = &subscribers[i];
        s->expected = must_alloc((size_t)opt->publishers * sizeof(uint64_t));
        s->conn = conn_open(&far, &SUBSCRIBER, s);
        conn_print(s->conn, "SUB bench.%s 1\r\n", opt->fresh ? ">" : "pubsub");
        conn_fence(s->conn);
    }
    for (int i = 0; i < opt->publishers; i++) {
        struct publisher *p = &publishers[i];
        p->number = (uint32_t)i;
        p->count = opt->msgs / (uint64_t)opt->publishers + ((uint64_t)i < opt->msgs % (uint64_t)opt->publishers);
        p->conn = conn_open(opt, &PUBLISHER, p);
    }
}

/* Nothing may follow the last message: a server that repeats it would repeat it before this PONG. */
static void check_nothing_follows(void) {
    for (int i = 0; i < opt->subscribers; i++) {
        conn_fence(subscribers[i].conn);
        if (subscribers[i].received != opt->msgs)
            fail("a subscriber got %llu messages of %llu", (unsigned long long)subscribers[i].received,
                 (unsigned long long)opt->msgs);
    }
}

static void build_head(void) {
    size_t len = (size_t)sprintf(head, "PUB ");
    if (opt->fresh) {
        len += fresh_subject(head + len, sizeof head - len, "bench");
        fresh_at = len - FRESH_DIGITS;
    } else
        len += (size_t)sprintf(head + len, "bench.pubsub");
    head_len = len + (size_t)sprintf(head + len, " %u\r\n", opt->size);
}

int cmd_pubsub(const struct options *o) {
    opt = o;
    window = o->window ? o->window : WINDOW_SIZE / o->size + 2;
    build_head();
    open_all();
    options_settle(o);
    for (int i = 0; i < o->subscribers; i++)
        subscribers[i].conn->active = true;
    meter_start();
    for (int i = 0; i < o->publishers; i++) {
        publishers[i].conn->active = true;
        conn_turn(publishers[i].conn);
    }
    loop_until(&finished);
    meter_stop();
    check_nothing_follows();
    uint64_t deliveries = o->msgs * (uint64_t)o->subscribers;
    return meter_report(deliveries, deliveries * o->size);
}

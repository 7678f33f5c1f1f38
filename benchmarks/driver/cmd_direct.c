/* direct: direct get of the last message of a subject, one outstanding request on each connection.
 *
 * The stream is filled with one message for each of --subjects; requests walk them in a scrambled
 * order. Verified: each reply on its own token, with the right Nats-Subject and Nats-Sequence header
 * and the payload that was published.
 */
#include "commands.h"
#include "conn.h"
#include "jsapi.h"
#include "jspublish.h"
#include "meter.h"
#include "payload.h"

#include <stdio.h>
#include <string.h>

struct getter {
    struct conn *conn;
    uint64_t next, answered, count;
    uint64_t subject_index;  /* of the outstanding request */
    int64_t sent_at_ns;
};

static const struct options *opt;
static uint64_t answered_count;
static bool finished;

static void on_turn(struct conn *conn) {
    struct getter *g = conn->state;
    char token[TOKEN_LEN], subject[64];
    if (g->next > g->answered || g->next == g->count)
        return;
    g->subject_index = random_u64() % opt->subjects;
    js_subject(subject, sizeof subject, opt->subjects, g->subject_index);
    token_write(token, g->next++);
    conn_print(conn, "PUB $JS.API.DIRECT.GET." STREAM ".%s %s.%.*s 0\r\n\r\n", subject, conn->inbox, TOKEN_LEN,
               token);
    g->sent_at_ns = now_ns();
}

static bool has_header(const struct frame *f, const char *key, const char *value) {
    char line[128];
    int len = snprintf(line, sizeof line, "\r\n%s: %s\r\n", key, value);
    return f->header_len && memmem(f->header, f->header_len, line, (size_t)len);
}

static void on_msg(struct conn *conn, const struct frame *f) {
    struct getter *g = conn->state;
    char subject[64], seq[24];
    uint32_t publisher;
    uint64_t index, token = conn_token(conn, f);
    int64_t now = now_ns();
    if (token != g->answered || g->answered == g->next)
        fail("a reply to request %lld, expected %llu", (long long)token, (unsigned long long)g->answered);
    js_subject(subject, sizeof subject, opt->subjects, g->subject_index);
    snprintf(seq, sizeof seq, "%llu", (unsigned long long)g->subject_index + 1);
    if (!has_header(f, "Nats-Subject", subject) || !has_header(f, "Nats-Sequence", seq))
        fail("direct get of %s, sequence %s: %.*s", subject, seq, (int)f->header_len, f->header ? f->header : "");
    if (!payload_read(f->payload, f->payload_len, &publisher, &index) || f->payload_len != opt->size ||
        index != g->subject_index)
        fail("direct get of %s: wrong payload", subject);
    meter_latency(now - g->sent_at_ns);
    g->answered++;
    if (++answered_count == opt->msgs)
        finished = true;
}

static const struct role GETTER = {.on_msg = on_msg, .on_turn = on_turn};

int cmd_direct(const struct options *o) {
    uint64_t connections = (uint64_t)o->connections;
    struct getter *all = must_alloc(connections * sizeof *all);
    opt = o;
    js_stream_create(o);
    js_publish(o, 1, 1000, o->subjects, false);
    for (uint64_t i = 0; i < connections; i++) {
        all[i].count = o->msgs / connections + (i < o->msgs % connections);
        all[i].conn = conn_open(o, &GETTER, &all[i]);
        conn_subscribe_inbox(all[i].conn);
        conn_fence(all[i].conn);
    }
    meter_latencies(o->msgs);
    meter_start();
    for (uint64_t i = 0; i < connections; i++) {
        all[i].conn->active = true;
        conn_turn(all[i].conn);
    }
    loop_until(&finished);
    meter_stop();
    for (uint64_t i = 0; i < connections; i++)
        conn_fence(all[i].conn);
    if (!o->keep)
        js_stream_delete(o);
    return meter_report(o->msgs, o->msgs * o->size);
}

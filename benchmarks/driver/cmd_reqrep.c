/* reqrep: requests to one responder in this process; each connection keeps --window outstanding.
 *
 * With a window of 1 (the default) the latency is that of one round trip through the server, there and
 * back; with a wide window the server is the bottleneck and the rate is what counts.
 * Verified: each reply once, in order, on its own inbox token, with the payload of its request.
 */
#include "commands.h"
#include "conn.h"
#include "meter.h"
#include "payload.h"

#include <stdio.h>
#include <string.h>

#define CHUNK_MAX 512 /* requests built at once */

struct requester {
    struct conn *conn;
    uint32_t number;
    uint64_t next, answered, count;
    int64_t *sent_at_ns;    /* by request index modulo window */
};

static const struct options *opt;
static uint64_t window, answered_count;
static bool finished;

static void responder_msg(struct conn *conn, const struct frame *f) {
    char *start = conn_room(conn, f->reply_len + f->payload_len + 32), *at = start;
    if (!f->reply)
        fail("a request without reply subject: %.*s", (int)f->line_len, f->line);
    memcpy(at, "PUB ", 4);
    memcpy(at + 4, f->reply, f->reply_len);
    at += 4 + f->reply_len;
    *at++ = ' ';
    at += digits_write(at, f->payload_len);
    memcpy(at, "\r\n", 2);
    memcpy(at + 2, f->payload, f->payload_len);
    memcpy(at + 2 + f->payload_len, "\r\n", 2);
    conn_add(conn, (size_t)(at - start) + f->payload_len + 4);
}

static void requester_turn(struct conn *conn) {
    struct requester *r = conn->state;
    uint64_t room = r->answered + window - r->next;
    if (!conn_idle(conn) || !room || r->next == r->count)
        return;
    int64_t now = now_ns();
    room = room < CHUNK_MAX ? room : CHUNK_MAX;
    for (; room && r->next < r->count; room--, r->next++) {
        char *start = conn_room(conn, opt->size + 128), *at = start;
        at += sprintf(at, "PUB bench.service %s.", conn->inbox);
        token_write(at, r->next);
        at += TOKEN_LEN;
        at += sprintf(at, " %u\r\n", opt->size);
        payload_write(at, opt->size, r->number, r->next);
        memcpy(at + opt->size, "\r\n", 2);
        conn_add(conn, (size_t)(at - start) + opt->size + 2);
        r->sent_at_ns[r->next % window] = now;
    }
    conn->hungry = r->next < r->count && r->next < r->answered + window;
}

static void requester_msg(struct conn *conn, const struct frame *f) {
    struct requester *r = conn->state;
    uint32_t number;
    uint64_t index, token = conn_token(conn, f);
    if (f->header_len)
        fail("request %llu: %.*s", (unsigned long long)r->answered, (int)f->header_len, f->header);
    if (token != r->answered || r->answered == r->next)
        fail("reply to request %lld of connection %u, expected %llu", (long long)token, r->number,
             (unsigned long long)r->answered);
    if (!payload_read(f->payload, f->payload_len, &number, &index) || f->payload_len != opt->size ||
        number != r->number || index != token)
        fail("damaged reply to request %llu", (unsigned long long)token);
    meter_latency(now_ns() - r->sent_at_ns[token % window]);
    r->answered++;
    if (++answered_count == opt->msgs)
        finished = true;
}

static const struct role RESPONDER = {.on_msg = responder_msg};
static const struct role REQUESTER = {.on_msg = requester_msg, .on_turn = requester_turn};

int cmd_reqrep(const struct options *o) {
    uint64_t connections = (uint64_t)o->connections;
    struct requester *all = must_alloc(connections * sizeof *all);
    opt = o;
    window = o->window ? o->window : 1;
    struct options far = options_far(o);
    struct conn *responder = conn_open(&far, &RESPONDER, NULL);
    conn_print(responder, "SUB bench.service 1\r\n");
    conn_fence(responder);
    for (uint64_t i = 0; i < connections; i++) {
        struct requester *r = &all[i];
        r->number = (uint32_t)i;
        r->count = o->msgs / connections + (i < o->msgs % connections);
        r->sent_at_ns = must_alloc(window * sizeof(int64_t));
        r->conn = conn_open(o, &REQUESTER, r);
        conn_subscribe_inbox(r->conn);
        conn_fence(r->conn);
    }
    options_settle(o);
    meter_latencies(o->msgs);
    meter_start();
    for (uint64_t i = 0; i < connections; i++) {
        all[i].conn->active = true;
        conn_turn(all[i].conn);
    }
    loop_until(&finished);
    meter_stop();
    for (uint64_t i = 0; i < connections; i++)
        conn_fence(all[i].conn); /* a repeated reply would come before the PONG, and fail */
    return meter_report(o->msgs, o->msgs * o->size);
}

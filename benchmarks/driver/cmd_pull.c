/* pull: fetch a stream through a durable pull consumer in batches, acknowledging like a client library.
 *
 * Each connection asks for --batch messages, acks each one with "+ACK" on its reply subject (or not at
 * all with --ack none) and asks again when the batch is complete. The very last ack asks for a reply,
 * so that the time ends when the acks are settled, not when they are sent.
 * Verified: each stream sequence once, in order on a connection (and without a gap when there is only
 * one), never redelivered, subject and payload as published; at the end the consumer's own counts.
 */
#include "commands.h"
#include "conn.h"
#include "jsapi.h"
#include "jspublish.h"
#include "meter.h"
#include "payload.h"

#include <stdio.h>
#include <string.h>

#define FILL_WINDOW_SIZE (16u << 20)

struct puller {
    struct conn *conn;
    uint64_t left;        /* messages that the running request still owes */
    uint64_t last_seq;
    uint64_t requests;
};

static const struct options *opt;
static struct seen seqs;  /* by stream sequence - 1 */
static bool finished;

static void on_turn(struct conn *conn) {
    struct puller *p = conn->state;
    char token[TOKEN_LEN], body[64];
    uint64_t due = opt->msgs - seqs.count;
    if (p->left || !due)
        return;
    p->left = opt->connections == 1 && due < opt->batch ? due : opt->batch;
    token_write(token, p->requests++);
    int len = snprintf(body, sizeof body, "{\"batch\":%llu,\"expires\":5000000000}", (unsigned long long)p->left);
    conn_print(conn, "PUB $JS.API.CONSUMER.MSG.NEXT." STREAM "." CONSUMER " %s.%.*s %d\r\n%s\r\n", conn->inbox,
               TOKEN_LEN, token, len, body);
}

/* Find the five numbers that end an ack subject: delivered, stream seq, consumer seq, time, pending. */
static bool ack_numbers(const struct frame *f, int64_t numbers[5]) {
    const char *at = f->reply + f->reply_len, *end = at;
    if (!f->reply || f->reply_len < 8 || memcmp(f->reply, "$JS.ACK.", 8) != 0)
        return false;
    for (int dots = 0; at > f->reply; at--)
        if (at[-1] == '.' && ++dots == 5)
            break;
    for (int i = 0; i < 5; i++, at++)
        if ((numbers[i] = digits_read(&at, end)) < 0 || (at < end && *at != '.'))
            return false;
    return true;
}

static void check_content(const struct frame *f, uint64_t seq) {
    char subject[64];
    uint32_t publisher;
    uint64_t index;
    uint32_t len = (uint32_t)js_subject(subject, sizeof subject, opt->subjects, seq - 1);
    if (f->subject_len != len || memcmp(f->subject, subject, len) != 0)
        fail("sequence %llu has subject %.*s", (unsigned long long)seq, (int)f->subject_len, f->subject);
    if (!payload_read(f->payload, f->payload_len, &publisher, &index) || f->payload_len != opt->size || publisher ||
        index != seq - 1)
        fail("sequence %llu has a wrong payload", (unsigned long long)seq);
}

static void ack(struct conn *conn, const struct frame *f, bool last) {
    static const char END[] = " 4\r\n+ACK\r\n";
    char *start = conn_room(conn, f->reply_len + 64), *at = start;
    memcpy(at, "PUB ", 4);
    memcpy(at + 4, f->reply, f->reply_len);
    at += 4 + f->reply_len;
    if (last)
        at += sprintf(at, " %s.last", conn->inbox);
    memcpy(at, END, sizeof END - 1);
    conn_add(conn, (size_t)(at - start) + sizeof END - 1);
}

/* A message without ack subject: the answer to the last ack, or the end of a request. */
static void on_status(struct puller *p, const struct frame *f) {
    if (seqs.count == opt->msgs) { /* requests of other connections may end with any status now */
        finished = finished || (!f->header_len && !f->payload_len);
        return;
    }
    if (f->header_len < 12 || (memcmp(f->header + 8, " 408", 4) != 0 && memcmp(f->header + 8, " 404", 4) != 0))
        fail("the consumer said %.*s", (int)f->header_len, f->header ? f->header : "");
    p->left = 0;
}

static void on_msg(struct conn *conn, const struct frame *f) {
    struct puller *p = conn->state;
    int64_t numbers[5];
    if (!f->reply)
        return on_status(p, f);
    if (!ack_numbers(f, numbers))
        fail("not an ack subject: %.*s", (int)f->reply_len, f->reply);
    uint64_t seq = (uint64_t)numbers[1];
    if (numbers[0] != 1 || !seq || !seen_mark(&seqs, seq - 1))
        fail("sequence %llu came again (delivery %lld) or is out of range", (unsigned long long)seq,
             (long long)numbers[0]);
    if (opt->connections == 1 ? seq != p->last_seq + 1 : seq <= p->last_seq)
        fail("sequence %llu came after %llu", (unsigned long long)seq, (unsigned long long)p->last_seq);
    check_content(f, seq);
    p->last_seq = seq;
    if (!p->left)
        fail("sequence %llu is more than was asked for", (unsigned long long)seq);
    p->left--;
    bool last = seqs.count == opt->msgs;
    if (opt->ack)
        ack(conn, f, last);
    else if (last)
        finished = true;
}

static const struct role PULLER = {.on_msg = on_msg, .on_turn = on_turn};

int cmd_pull(const struct options *o) {
    struct puller *all = must_alloc((size_t)o->connections * sizeof *all);
    uint64_t fill_window = FILL_WINDOW_SIZE / (o->size + 256);
    opt = o;
    js_stream_create(o);
    js_publish(o, 1, fill_window < 4000 ? fill_window + 1 : 4000, o->msgs, false);
    js_consumer_create(o, o->ack);
    seen_init(&seqs, o->msgs);
    for (int i = 0; i < o->connections; i++) {
        all[i].conn = conn_open(o, &PULLER, &all[i]);
        conn_subscribe_inbox(all[i].conn);
        conn_fence(all[i].conn);
    }
    meter_start();
    for (int i = 0; i < o->connections; i++) {
        all[i].conn->active = true;
        conn_turn(all[i].conn);
    }
    loop_until(&finished);
    meter_stop();
    for (int i = 0; i < o->connections; i++)
        conn_fence(all[i].conn); /* what is delivered once more comes before the PONG, and fails */
    js_consumer_check(o, o->msgs, o->ack);
    if (!o->keep)
        js_stream_delete(o);
    return meter_report(o->msgs, o->msgs * o->size);
}

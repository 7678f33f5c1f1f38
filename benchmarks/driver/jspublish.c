/* JetStream publishing with acknowledgements, for jspub, jssync and to fill a stream for readers.
 *
 * A message is a template, copied and patched at four fixed places: subject digits, reply token,
 * message id, payload. PubAck as seen on the wire: {"stream":"S","seq":N[,"duplicate": true]}.
 */
#include "jspublish.h"

#include "conn.h"
#include "jsapi.h"
#include "meter.h"
#include "payload.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define CHUNK_SIZE (256 * 1024)
#define PACE_NS 1000000 /* between two looks at --rate: often enough, and the server keeps its core */

struct publisher {
    struct conn *conn;
    uint32_t number;
    uint64_t next, settled, count;
    struct seen acks;          /* by message index */
    uint64_t last_index, last_seq;
    int64_t sent_at_ns;        /* of the last message; a latency when the window is 1 */
    char *head;                /* template up to the payload */
    size_t head_len, token_at, id_at;   /* id_at 0: no message id */
    size_t fresh_at;           /* 0: --subjects of them */
};

static struct {
    const struct options *opt;
    uint32_t publishers;
    uint64_t window, msgs, settled;
    int64_t began_ns;
    struct seen seqs;          /* by stream sequence; 0 is marked from the start */
    bool finished;
} run;

static const size_t SUBJECT_DIGITS = 8;

int js_subject(char *out, size_t size, uint32_t subjects, uint64_t index) {
    if (subjects == 1)
        return snprintf(out, size, "load.a");
    return snprintf(out, size, "load.%08llu", (unsigned long long)(index % subjects));
}

static void build_head(struct publisher *p) {
    static const char ID[] = "NATS/1.0\r\nNats-Msg-Id: ";
    uint32_t header_len = (uint32_t)(sizeof ID - 1) + TOKEN_LEN + 4;
    char subject[64];
    p->head = must_alloc(512);
    const char *verb = run.opt->msg_id ? "HPUB" : "PUB";
    if (run.opt->fresh)
        p->fresh_at = strlen(verb) + 1 + fresh_subject(subject, sizeof subject, "load") - FRESH_DIGITS;
    else
        js_subject(subject, sizeof subject, run.opt->subjects, 0);
    int n = sprintf(p->head, "%s %s %s.", verb, subject, p->conn->inbox);
    p->token_at = (size_t)n;
    n += TOKEN_LEN;
    if (run.opt->msg_id) {
        n += sprintf(p->head + n, " %u %u\r\n%s", header_len, header_len + run.opt->size, ID);
        p->id_at = (size_t)n;
        n += TOKEN_LEN;
        n += sprintf(p->head + n, "\r\n\r\n");
    } else
        n += sprintf(p->head + n, " %u\r\n", run.opt->size);
    p->head_len = (size_t)n;
}

static void put_digits(char *out, uint64_t value) {
    for (size_t i = SUBJECT_DIGITS; i--; value /= 10)
        out[i] = (char)('0' + value % 10);
}

static char *build(struct publisher *p, char *at) {
    uint64_t number = p->next * run.publishers + p->number; /* unique in the run */
    memcpy(at, p->head, p->head_len);
    token_write(at + p->token_at, p->next);
    if (p->fresh_at)
        fresh_number(at + p->fresh_at, number);
    else if (run.opt->subjects > 1)
        put_digits(at + (p->id_at ? 5 : 4) + 5, number % run.opt->subjects);
    if (p->id_at)
        token_write(at + p->id_at, number);
    at += p->head_len;
    payload_write(at, run.opt->size, p->number, p->next++);
    memcpy(at + run.opt->size, "\r\n", 2);
    return at + run.opt->size + 2;
}

/* The messages that --rate allows by now; when that is none, wait for the next ones. */
static uint64_t due(const struct publisher *p) {
    if (!run.opt->rate)
        return UINT64_MAX;
    double each_s = (double)run.publishers / run.opt->rate;
    uint64_t due = (uint64_t)((double)(now_ns() - run.began_ns) / 1e9 / each_s);
    if (due <= p->next) {
        nanosleep(&(struct timespec){.tv_nsec = PACE_NS}, NULL);
        return 0;
    }
    return due - p->next;
}

static void on_turn(struct conn *conn) {
    struct publisher *p = conn->state;
    uint64_t left = p->count - p->next;
    uint64_t room = p->settled + run.window - p->next;
    uint64_t chunk = CHUNK_SIZE / (p->head_len + run.opt->size + 2) + 1;
    uint64_t count = left < room ? left : room;
    if (!conn_idle(conn) || !count)
        return;
    uint64_t allowed = due(p);
    conn->hungry = count > chunk || count > allowed;
    count = count < allowed ? count : allowed;
    if (!count)
        return;
    count = count < chunk ? count : chunk;
    char *start = conn_room(conn, count * (p->head_len + run.opt->size + 2)), *at = start;
    if (run.window == 1)
        p->sent_at_ns = now_ns();
    while (count--)
        at = build(p, at);
    conn_add(conn, (size_t)(at - start));
}

/* Read a plain PubAck of our stream; -1 when the reply is anything else. */
static int64_t ack_seq(const struct frame *f) {
    static const char START[] = "{\"stream\":\"" STREAM "\",\"seq\":";
    const char *at = f->payload + sizeof START - 1, *end = f->payload + f->payload_len;
    if (f->header_len || f->payload_len < sizeof START || memcmp(f->payload, START, sizeof START - 1) != 0)
        return -1;
    int64_t seq = digits_read(&at, end);
    return at + 1 == end && *at == '}' ? seq : -1;
}

static void settle(struct publisher *p) {
    p->settled++;
    if (++run.settled == run.msgs)
        run.finished = true;
}

/* A 503 or an error PubAck is counted; anything else that is not a plain PubAck ends the run. */
static void not_an_ack(struct publisher *p, const struct frame *f) {
    char text[256];
    uint32_t len = f->payload_len < sizeof text - 1 ? f->payload_len : sizeof text - 1;
    memcpy(text, f->payload, len);
    text[len] = 0;
    if (!f->header_len && !strstr(text, "\"error\""))
        fail("not a PubAck of a new message: %s", text);
    meter_error(f->header_len ? f->header : text, f->header_len ? f->header_len : len);
    settle(p);
}

static void on_msg(struct conn *conn, const struct frame *f) {
    struct publisher *p = conn->state;
    uint64_t index = conn_token(conn, f);
    if (index >= p->next || !seen_mark(&p->acks, index))
        fail("an ack for message %lld of publisher %u, which waits for none", (long long)index, p->number);
    int64_t seq = ack_seq(f);
    if (seq < 0)
        return not_an_ack(p, f);
    if (!seen_mark(&run.seqs, (uint64_t)seq))
        fail("message %llu was acked with sequence %lld: given before or out of range", (unsigned long long)index,
             (long long)seq);
    if ((index > p->last_index) != ((uint64_t)seq > p->last_seq) && p->last_seq)
        fail("sequence %lld of message %llu and %llu of message %llu are in the wrong order", (long long)seq,
             (unsigned long long)index, (unsigned long long)p->last_seq, (unsigned long long)p->last_index);
    p->last_index = index;
    p->last_seq = (uint64_t)seq;
    if (run.window == 1)
        meter_latency(now_ns() - p->sent_at_ns);
    settle(p);
}

static const struct role PUBLISHER = {.on_msg = on_msg, .on_turn = on_turn};

static void open_publisher(struct publisher *p, uint32_t number) {
    p->number = number;
    p->count = run.msgs / run.publishers + (number < run.msgs % run.publishers);
    p->conn = conn_open(run.opt, &PUBLISHER, p);
    seen_init(&p->acks, p->count);
    conn_subscribe_inbox(p->conn);
    conn_fence(p->conn);
    build_head(p);
}

void js_publish(const struct options *o, int publishers, uint64_t window, uint64_t msgs, bool measured) {
    struct publisher *all = must_alloc((size_t)publishers * sizeof *all);
    run.opt = o;
    run.publishers = (uint32_t)publishers;
    run.window = window;
    run.msgs = msgs;
    seen_init(&run.seqs, msgs + 1);
    seen_mark(&run.seqs, 0);
    for (int i = 0; i < publishers; i++)
        open_publisher(&all[i], (uint32_t)i);
    run.began_ns = now_ns();
    if (measured)
        meter_start();
    for (int i = 0; i < publishers; i++) {
        all[i].conn->active = true;
        conn_turn(all[i].conn);
    }
    loop_until(&run.finished);
    if (measured)
        meter_stop();
    for (int i = 0; i < publishers; i++)
        conn_fence(all[i].conn); /* a second ack would come before the PONG, and fail */
    js_stream_check(o, run.seqs.count - 1);
}

/* The few JetStream API calls that a run needs for its set-up and its last check, one at a time. */
#include "jsapi.h"

#include "conn.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static char answer[64 * 1024]; /* of the last request */
static uint64_t asked;           /* requests so far, the token of the next one */
static bool answered;

static void on_msg(struct conn *conn, const struct frame *f) {
    if (conn_token(conn, f) != asked - 1)
        fail("JetStream API: an answer to no running request: %.*s", (int)f->payload_len, f->payload);
    if (f->header_len)
        fail("JetStream API: %.*s (is JetStream on?)", (int)(f->header_len > 30 ? 30 : f->header_len), f->header);
    if (f->payload_len >= sizeof answer)
        fail("JetStream API: an answer of %u bytes", f->payload_len);
    memcpy(answer, f->payload, f->payload_len);
    answer[f->payload_len] = 0;
    answered = true;
}

static const struct role CONTROL = {.on_msg = on_msg};

static void request(const struct options *o, const char *subject, const char *body) {
    static struct conn *conn;
    char token[TOKEN_LEN];
    if (!conn) {
        struct options far = options_far(o);
        conn = conn_open(&far, &CONTROL, NULL);
        conn_subscribe_inbox(conn);
    }
    answered = false;
    token_write(token, asked++);
    conn_print(conn, "PUB $JS.API.%s %s.%.*s %zu\r\n%s\r\n", subject, conn->inbox, TOKEN_LEN, token, strlen(body),
               body);
    conn_turn(conn);
    loop_until(&answered);
}

static void must(const char *what) {
    if (strstr(answer, "\"error\""))
        fail("%s: %.300s", what, answer);
}

static void stream_delete(const struct options *o, const char *subject) {
    request(o, subject, "");
    if (!strstr(answer, "10059")) /* not found */
        must("stream delete");
}

void js_stream_delete(const struct options *o) { stream_delete(o, "STREAM.DELETE." STREAM); }

void js_copy_delete(const struct options *o) { stream_delete(o, "STREAM.DELETE." COPY); }

void js_stream_create(const struct options *o) {
    char body[512];
    js_stream_delete(o);
    snprintf(body, sizeof body,
             "{\"name\":\"" STREAM "\",\"subjects\":[\"load.>\"],\"retention\":\"limits\",\"discard\":\"old\","
             "\"storage\":\"%s\",\"max_consumers\":-1,\"max_msgs\":-1,\"max_bytes\":-1,\"max_age\":0,"
             "\"max_msg_size\":-1,\"num_replicas\":%u,\"allow_direct\":true}",
             o->storage, o->replicas);
    request(o, "STREAM.CREATE." STREAM, body);
    must("stream create");
    if (json_number(strstr(answer, "\"state\":"), "messages") != 0)
        fail("stream create: the stream is not empty: %.300s", answer);
}

void js_copy_create(const struct options *o, const char *how) {
    char body[256];
    snprintf(body, sizeof body, "{\"name\":\"" COPY "\",\"storage\":\"%s\",%s}", o->storage, how);
    request(o, "STREAM.CREATE." COPY, body);
    must("copy create");
}

uint64_t js_copy_count(const struct options *o) {
    request(o, "STREAM.INFO." COPY, "");
    must("copy info");
    return (uint64_t)json_number(strstr(answer, "\"state\":"), "messages");
}

static void stream_check(const struct options *o, const char *subject, uint64_t count) {
    request(o, subject, "");
    must("stream info");
    const char *state = strstr(answer, "\"state\":");
    int64_t msgs = json_number(state, "messages");
    int64_t first = json_number(state, "first_seq");
    int64_t last = json_number(state, "last_seq");
    if (msgs != (int64_t)count || first != 1 || last != (int64_t)count)
        fail("the stream holds %lld messages, %lld..%lld, of %llu", (long long)msgs, (long long)first,
             (long long)last, (unsigned long long)count);
}

void js_stream_check(const struct options *o, uint64_t count) { stream_check(o, "STREAM.INFO." STREAM, count); }

void js_copy_check(const struct options *o, uint64_t count) { stream_check(o, "STREAM.INFO." COPY, count); }

void js_consumer_create(const struct options *o, bool ack) {
    char body[512];
    snprintf(body, sizeof body,
             "{\"stream_name\":\"" STREAM "\",\"config\":{\"durable_name\":\"" CONSUMER "\",\"deliver_policy\":\"all\","
             "\"ack_policy\":\"%s\",\"replay_policy\":\"instant\"}}",
             ack ? "explicit" : "none");
    request(o, "CONSUMER.CREATE." STREAM "." CONSUMER, body);
    must("consumer create");
}

static int64_t consumer_number(const struct options *o, const char *group, const char *key) {
    request(o, "CONSUMER.INFO." STREAM "." CONSUMER, "");
    must("consumer info");
    const char *from = group ? strstr(answer, group) : answer;
    return json_number(from, key);
}

void js_consumer_check(const struct options *o, uint64_t count, bool ack) {
    int64_t delivered = consumer_number(o, "\"delivered\":", "consumer_seq");
    if (delivered != (int64_t)count)
        fail("the consumer counts %lld deliveries of %llu", (long long)delivered, (unsigned long long)count);
    if (!ack)
        return;
    int64_t floor = -1;
    for (int tries = 0; tries < 100 && floor != (int64_t)count; tries++) {
        floor = consumer_number(o, "\"ack_floor\":", "stream_seq");
        if (floor != (int64_t)count)
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL); /* the peer settles acks in the background */
    }
    int64_t pending = consumer_number(o, NULL, "num_ack_pending");
    if (floor != (int64_t)count || pending != 0)
        fail("ack floor %lld of %llu, %lld acks pending", (long long)floor, (unsigned long long)count,
             (long long)pending);
}

/* bulk: read a stream through bulk reads, the next request when the last chunk of the one before is there.
 *
 * Only pyjs-server answers these. --window is `max_bytes` of a request (0: the server's default).
 * --unchecked: the server leaves it to the reader to check the records.
 * Verified: each stream sequence once and in order, entries and records telling the same, subject and payload as
 * published, and the end where the stream ends. docs/bulk-read.md has the form of a chunk.
 */
#include "commands.h"
#include "conn.h"
#include "jsapi.h"
#include "jspublish.h"
#include "meter.h"
#include "payload.h"

#include <stdio.h>
#include <string.h>

#define HEAD_SIZE 64
#define ENTRY_SIZE 40
#define RECORD_SIZE 40 /* without subject, headers and payload */
#define FILL_WINDOW 4000
enum { LAST = 1, END = 2 };

static const struct options *opt;
static uint64_t next_seq = 1, requests;
static bool waiting, finished;

static uint16_t u16(const char *p) { uint16_t v; memcpy(&v, p, 2); return v; }
static uint32_t u32(const char *p) { uint32_t v; memcpy(&v, p, 4); return v; }
static uint64_t u64(const char *p) { uint64_t v; memcpy(&v, p, 8); return v; }

static void on_turn(struct conn *conn) {
    char token[TOKEN_LEN], body[128];
    if (waiting || finished)
        return;
    waiting = true;
    token_write(token, requests++);
    int len = snprintf(body, sizeof body, "{\"seq\":%llu,\"max_bytes\":%llu%s}", (unsigned long long)next_seq,
                       (unsigned long long)opt->window, opt->unchecked ? ",\"unchecked\":true" : "");
    conn_print(conn, "PUB $JS.API.PYJS.BULK.READ." STREAM " %s.%.*s %d\r\n%s\r\n", conn->inbox, TOKEN_LEN, token, len,
               body);
}

static void check_message(const char *entry, const char *data, uint64_t size) {
    char subject[64];
    uint32_t publisher, at = u32(entry + 16), body = u32(entry + 20);
    uint64_t index, seq = u64(entry);
    uint32_t len = (uint32_t)js_subject(subject, sizeof subject, opt->subjects, seq - 1);
    if (seq != next_seq || body != opt->size || at + (uint64_t)RECORD_SIZE + len + body > size)
        fail("entry %llu where %llu should be", (unsigned long long)seq, (unsigned long long)next_seq);
    const char *record = data + at;
    if (u32(record) != RECORD_SIZE + len + body || u64(record + 8) != seq || u16(entry + 28) != len)
        fail("sequence %llu: entry and record differ", (unsigned long long)seq);
    if (memcmp(record + 32, subject, len) != 0)
        fail("sequence %llu has another subject", (unsigned long long)seq);
    if (!payload_read(record + 32 + len, body, &publisher, &index) || publisher || index != seq - 1)
        fail("sequence %llu has a wrong payload", (unsigned long long)seq);
    next_seq++;
}

static void on_msg(struct conn *conn, const struct frame *f) {
    const char *p = f->payload;
    (void)conn;
    if (f->payload_len < HEAD_SIZE || memcmp(p, "PYJB", 4) != 0)
        fail("bulk read: %.*s", (int)(f->payload_len > 300 ? 300 : f->payload_len), p);
    uint64_t n = u32(p + 40), size = u32(p + 44);
    if (HEAD_SIZE + n * ENTRY_SIZE + size != f->payload_len || u64(p + 8) != next_seq || !waiting)
        fail("a chunk of %llu entries that does not fit", (unsigned long long)n);
    for (uint64_t i = 0; i < n; i++)
        check_message(p + HEAD_SIZE + i * ENTRY_SIZE, p + HEAD_SIZE + n * ENTRY_SIZE, size);
    if (u64(p + 16) != next_seq || u32(p + 52))
        fail("a chunk that ends before %llu", (unsigned long long)u64(p + 16));
    waiting = !(u16(p + 6) & LAST);
    finished = u16(p + 6) & END;
}

static const struct role READER = {.on_msg = on_msg, .on_turn = on_turn};

int cmd_bulk(const struct options *o) {
    opt = o;
    js_stream_create(o);
    js_publish(o, 1, FILL_WINDOW, o->msgs, false);
    struct conn *conn = conn_open(o, &READER, NULL);
    conn_subscribe_inbox(conn);
    conn_fence(conn);
    meter_start();
    conn->active = true;
    conn_turn(conn);
    loop_until(&finished);
    meter_stop();
    if (next_seq != o->msgs + 1)
        fail("the end came at %llu", (unsigned long long)next_seq);
    if (!o->keep)
        js_stream_delete(o);
    return meter_report(o->msgs, o->msgs * o->size);
}

/* pub: publish to nobody, as fast as the server reads; a PING behind the last message is the fence.
 *
 * The messages of one block are built once and sent again and again, so the driver costs little more
 * than the kernel's copy. With --subjects N the block holds one message for each of N subjects; with
 * --fresh there is no block, and each message gets its subject as it is sent.
 * Verified: no -ERR, and the PONG, which a server answers only after it has parsed all before it.
 * (run.py also compares the server's in_msgs.)
 */
#include "commands.h"
#include "conn.h"
#include "meter.h"
#include "payload.h"

#include <stdio.h>
#include <string.h>

#define BLOCK_SIZE (256 * 1024)
#define BLOCK_MAX (1u << 30)

static char *block;
static size_t msg_len;        /* every message of the block has this length */
static uint64_t block_count;

struct publisher {
    struct conn *conn;
    uint64_t left;            /* messages not yet handed to the socket */
    uint64_t at;              /* next message of the block; --fresh: number of the next one */
    uint32_t step;            /* --fresh: between the numbers of two messages */
    uint32_t size;            /* of a payload */
    bool fenced;
};

static char fresh_head[128];   /* --fresh: up to the payload, for the number of the message */
static size_t fresh_head_len, fresh_at;

static void build_fresh(const struct options *o) {
    size_t len = (size_t)sprintf(fresh_head, "PUB ");
    len += fresh_subject(fresh_head + len, sizeof fresh_head - len, "bench");
    fresh_at = len - FRESH_DIGITS;
    fresh_head_len = len + (size_t)sprintf(fresh_head + len, " %u\r\n", o->size);
    msg_len = fresh_head_len + o->size + 2;
}

static void build_block(const struct options *o) {
    char head[128];
    int head_len = o->subjects == 1 ? snprintf(head, sizeof head, "PUB bench.pub %u\r\n", o->size)
                                    : snprintf(head, sizeof head, "PUB bench.pub.%08u %u\r\n", 0, o->size);
    msg_len = (size_t)head_len + o->size + 2;
    block_count = o->subjects > 1 ? o->subjects : BLOCK_SIZE / msg_len + 1;
    if (block_count * msg_len > BLOCK_MAX)
        fail("%u subjects of %u bytes do not fit in a block", o->subjects, o->size);
    block = must_alloc(block_count * msg_len);
    for (uint64_t i = 0; i < block_count; i++) {
        char *at = block + i * msg_len;
        if (o->subjects > 1)
            snprintf(head, sizeof head, "PUB bench.pub.%08llu %u\r\n", (unsigned long long)i, o->size);
        memcpy(at, head, (size_t)head_len);
        payload_write(at + head_len, o->size, 0, i);
        memcpy(at + head_len + o->size, "\r\n", 2);
    }
}

static void send_fresh(struct publisher *p) {
    uint64_t chunk = BLOCK_SIZE / msg_len + 1, count = chunk < p->left ? chunk : p->left;
    char *start = conn_room(p->conn, count * msg_len), *at = start;
    for (uint64_t i = 0; i < count; i++, at += msg_len, p->at += p->step) {
        memcpy(at, fresh_head, fresh_head_len);
        fresh_number(at + fresh_at, p->at);
        payload_write(at + fresh_head_len, p->size, 0, p->at);
        memcpy(at + fresh_head_len + p->size, "\r\n", 2);
    }
    conn_add(p->conn, (size_t)(at - start));
    p->left -= count;
    p->conn->hungry = true;
}

static void on_turn(struct conn *conn) {
    struct publisher *p = conn->state;
    if (!conn_idle(conn))
        return;
    if (p->left && fresh_head_len) {
        send_fresh(p);
        return;
    }
    if (!p->left) {
        if (!p->fenced)
            conn_print(conn, "PING\r\n");
        p->fenced = true;
        return;
    }
    uint64_t count = block_count - p->at;
    uint64_t chunk = 4 * BLOCK_SIZE / msg_len + 1;
    count = count < chunk ? count : chunk;
    count = count < p->left ? count : p->left;
    conn_lend(conn, block + p->at * msg_len, count * msg_len);
    p->at = (p->at + count) % block_count;
    p->left -= count;
    conn->hungry = true;
}

static const struct role PUBLISHER = {.on_turn = on_turn};

int cmd_pub(const struct options *o) {
    struct publisher *all = must_alloc((size_t)o->publishers * sizeof *all);
    if (o->fresh)
        build_fresh(o);
    else
        build_block(o);
    for (int i = 0; i < o->publishers; i++) {
        all[i].conn = conn_open(o, &PUBLISHER, &all[i]);
        all[i].left = o->msgs / (uint64_t)o->publishers + ((uint64_t)i < o->msgs % (uint64_t)o->publishers);
        all[i].at = o->fresh ? (uint64_t)i : block_count * (uint64_t)i / (uint64_t)o->publishers;
        all[i].step = (uint32_t)o->publishers;
        all[i].size = o->size;
    }
    meter_start();
    for (int i = 0; i < o->publishers; i++) {
        all[i].conn->pong = false;
        all[i].conn->active = true;
        conn_turn(all[i].conn);
    }
    for (int i = 0; i < o->publishers; i++)
        loop_until(&all[i].conn->pong);
    meter_stop();
    return meter_report(o->msgs, o->msgs * o->size);
}

/* A WebSocket client: the upgrade, masked frames out, frames of the server in, permessage-deflate. */
#include "ws.h"

#include "packing.h"
#include "util.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define MESSAGE_MAX (32 * 1024)         /* payload of a frame before compression */
#define FRAME_MAX (2 * MESSAGE_MAX)     /* of an incompressible one, with its head */
#define INPUT_SIZE (256 * 1024)
#define ANSWER_MAX 4096
#define HEAD_MAX 14

enum { FIN = 0x80, RSV1 = 0x40, MASKED = 0x80, BINARY = 2, CLOSE = 8, PING = 9, PONG = 10 };

struct ws {
    struct ws_below below;
    struct packing *packing;            /* NULL: nothing is compressed */
    uint32_t key;                       /* of the next frame */
    char out[FRAME_MAX];
    size_t out_start, out_end;
    char in[INPUT_SIZE];
    size_t in_start, in_end;
    uint64_t left;                      /* of the frame's payload */
    int opcode;
    bool last, packed;                  /* the frame ends its message; the message is compressed */
    bool unpacking;                     /* the inflater has a message */
};

static ssize_t read_or_wait(struct ws *ws, char *data, size_t size, int timeout_ms) {
    struct pollfd waited = {.fd = ws->below.fd, .events = POLLIN};
    for (;;) {
        ssize_t n = ws->below.read(ws->below.state, data, size);
        if (n >= 0 || (errno != EAGAIN && errno != EINTR))
            return n;
        if (poll(&waited, 1, timeout_ms) == 0)
            fail("no answer to the WebSocket request");
    }
}

static void upgrade(struct ws *ws, int timeout_ms) {
    static const char REQUEST[] =
        "GET / HTTP/1.1\r\nHost: natsload\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: bmF0c2xvYWQgd3Mga2V5IQ==\r\n";
    static const char DEFLATE[] = "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; "
                                  "client_no_context_takeover\r\n";
    char text[ANSWER_MAX];
    size_t len = (size_t)snprintf(text, sizeof text, "%s%s\r\n", REQUEST, ws->packing ? DEFLATE : "");
    if (ws->below.send(ws->below.state, text, len) != len)
        fail("the WebSocket request was not taken");
    for (len = 0; len < sizeof text - 1; len++) {
        if (read_or_wait(ws, text + len, 1, timeout_ms) != 1)
            fail("the server closed the connection instead of an upgrade");
        text[len + 1] = 0;
        if (len >= 3 && memcmp(text + len - 3, "\r\n\r\n", 4) == 0)
            break;
    }
    if (strncmp(text, "HTTP/1.1 101 ", 13) != 0)
        fail("no upgrade: %.60s", text);
    if (ws->packing && !strstr(text, "permessage-deflate"))
        fail("the server does not compress");
}

struct ws *ws_open(const struct ws_below *below, bool deflate, int timeout_ms) {
    struct ws *ws = must_alloc(sizeof *ws);
    ws->below = *below;
    ws->packing = deflate ? packing_new() : NULL;
    upgrade(ws, timeout_ms);
    return ws;
}

/* Output */

static void mask(char *data, size_t size, uint32_t key) {
    uint64_t wide = (uint64_t)key << 32 | key, word;
    size_t i = 0;
    for (; i + 8 <= size; i += 8) {
        memcpy(&word, data + i, 8);
        word ^= wide;
        memcpy(data + i, &word, 8);
    }
    for (; i < size; i++)
        data[i] ^= ((char *)&key)[i & 3];
}

/* Write a frame into the empty output. */
static void put_frame(struct ws *ws, int first, const char *payload, size_t size) {
    char *at = ws->out;
    *at++ = (char)first;
    if (size < 126)
        *at++ = (char)(MASKED | size);
    else {
        *at++ = (char)(MASKED | (size >> 16 ? 127 : 126));
        for (int shift = size >> 16 ? 56 : 8; shift >= 0; shift -= 8)
            *at++ = (char)((uint64_t)size >> shift);
    }
    ws->key = ws->key * 1664525 + 1013904223;
    memcpy(at, &ws->key, 4);
    memcpy(at + 4, payload, size);
    mask(at + 4, size, ws->key);
    ws->out_start = 0;
    ws->out_end = (size_t)(at + 4 - ws->out) + size;
}

bool ws_flush(struct ws *ws) {
    while (ws->out_start < ws->out_end) {
        size_t n = ws->below.send(ws->below.state, ws->out + ws->out_start, ws->out_end - ws->out_start);
        if (!n)
            return false;
        ws->out_start += n;
    }
    return true;
}

size_t ws_send(struct ws *ws, const char *data, size_t size) {
    char packed[FRAME_MAX - HEAD_MAX];
    size_t taken = 0;
    while (taken < size && ws_flush(ws)) {
        size_t piece = size - taken < MESSAGE_MAX ? size - taken : MESSAGE_MAX;
        if (ws->packing) {
            size_t n = packing_deflate(ws->packing, data + taken, piece, packed, sizeof packed);
            put_frame(ws, FIN | RSV1 | BINARY, packed, n);
        } else
            put_frame(ws, FIN | BINARY, data + taken, piece);
        taken += piece;
    }
    ws_flush(ws);
    return taken;
}

/* Input */

/* Read the head of the next frame; false: more bytes are needed. */
static bool read_head(struct ws *ws) {
    const unsigned char *at = (const unsigned char *)ws->in + ws->in_start;
    size_t have = ws->in_end - ws->in_start, need = 2;
    if (have < need)
        return false;
    if (at[1] & MASKED)
        fail("a masked frame of the server");
    need += at[1] == 126 ? 2 : at[1] == 127 ? 8 : 0;
    if (have < need)
        return false;
    ws->left = at[1];
    if (need > 2)
        ws->left = 0;
    for (size_t i = 2; i < need; i++)
        ws->left = ws->left << 8 | at[i];
    ws->last = at[0] & FIN;
    ws->opcode = at[0] & 15;
    if (ws->opcode == BINARY)
        ws->packed = at[0] & RSV1;
    ws->in_start += need;
    return true;
}

/* Answer a control frame; false: it is not complete. */
static bool control(struct ws *ws) {
    char payload[125];
    size_t size = (size_t)ws->left;
    if (ws->opcode == CLOSE)
        fail("the server closed the WebSocket");
    if (ws->in_end - ws->in_start < size)
        return false;
    memcpy(payload, ws->in + ws->in_start, size);
    ws->in_start += size;
    ws->left = 0;
    if (ws->opcode == PING) {
        if (!ws_flush(ws))
            fail("a PING that can not be answered");
        put_frame(ws, FIN | PONG, payload, size);
        ws_flush(ws);
    }
    ws->opcode = 0;
    return true;
}

/* Copy or inflate what is here of the frame; return the bytes written to `data`. */
static size_t take(struct ws *ws, char *data, size_t size) {
    size_t n = ws->in_end - ws->in_start < ws->left ? ws->in_end - ws->in_start : (size_t)ws->left;
    if (!ws->packed) {
        n = n < size ? n : size;
        memcpy(data, ws->in + ws->in_start, n);
        ws->in_start += n;
        ws->left -= n;
        return n;
    }
    size_t used = n, made = packing_inflate(ws->packing, ws->in + ws->in_start, &used, data, size);
    ws->in_start += used;
    ws->left -= used;
    ws->unpacking = true;
    if (!ws->left && ws->last && made < size) {     /* all input is inflated: now the end that is not sent */
        made += packing_end(ws->packing, data + made, size - made);
        ws->unpacking = made == size;
    }
    return made;
}

/* Return the bytes of all frames that are here, as many as fit. */
static size_t decode(struct ws *ws, char *data, size_t size) {
    size_t made = 0;
    while (made < size) {
        if (!ws->left && !ws->unpacking && !read_head(ws))
            break;
        if (ws->opcode >= CLOSE) {
            if (!control(ws))
                break;
            continue;
        }
        size_t n = take(ws, data + made, size - made);
        made += n;
        if (!n && (ws->left || ws->unpacking) && ws->in_start == ws->in_end)
            break;
        if (!n && ws->unpacking && !ws->left && !ws->last)
            ws->unpacking = false;      /* the next frame continues the message */
    }
    return made;
}

ssize_t ws_read(struct ws *ws, char *data, size_t size) {
    for (;;) {
        size_t made = decode(ws, data, size);
        if (made)
            return (ssize_t)made;
        memmove(ws->in, ws->in + ws->in_start, ws->in_end - ws->in_start);
        ws->in_end -= ws->in_start;
        ws->in_start = 0;
        ssize_t n = ws->below.read(ws->below.state, ws->in + ws->in_end, sizeof ws->in - ws->in_end);
        if (n <= 0)
            return n;
        ws->in_end += (size_t)n;
    }
}

bool ws_holds(const struct ws *ws) { return ws->in_start < ws->in_end || ws->unpacking; }

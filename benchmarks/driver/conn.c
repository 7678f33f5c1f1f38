/* Connections to the server and the one epoll loop that drives them. */
#include "conn.h"

#include "login.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_SIZE (256 * 1024)
#define LARGE (64 * 1024)       /* what is missing of a message, from which on it is waited for */
#define LEAST_MAX (512 * 1024)

static int epoll_fd = -1;
static int timeout_ms;

/* Send CONNECT; a token needs the nonce of INFO before. */
static void log_in(struct conn *conn, const struct options *o) {
    if (o->creds)
        loop_until(&conn->greeted);
    conn_add(conn, connect_line(o, conn->info, conn->info_len, conn_room(conn, CONNECT_MAX)));
    free(conn->info);
    conn->info = NULL;
}

struct conn *conn_open(const struct options *o, const struct role *role, void *state) {
    struct conn *conn = must_alloc(sizeof *conn);
    timeout_ms = o->timeout_s * 1000;
    if (epoll_fd < 0)
        epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    conn->channel = channel_open(o);
    conn->fd = channel_fd(conn->channel);
    conn->role = role;
    conn->state = state;
    conn->in_size = READ_SIZE;
    conn->in = must_alloc(conn->in_size);
    inbox_make(conn->inbox);
    conn->events = EPOLLIN;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, conn->fd, &event) != 0)
        fail("epoll_ctl: %s", strerror(errno));
    log_in(conn, o);
    conn_fence(conn);
    return conn;
}

char *conn_room(struct conn *conn, size_t size) {
    if (conn->out_start == conn->out_end)
        conn->out_start = conn->out_end = 0;
    if (conn->out_end + size > conn->out_size) {
        conn->out_size = (conn->out_end + size) * 2;
        conn->out = realloc(conn->out, conn->out_size);
        if (!conn->out)
            fail("no memory for %zu bytes of output", conn->out_size);
    }
    return conn->out + conn->out_end;
}

void conn_add(struct conn *conn, size_t size) { conn->out_end += size; }

void conn_print(struct conn *conn, const char *format, ...) {
    char text[2048];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (len < 0 || (size_t)len >= sizeof text)
        fail("a control message of %d bytes", len);
    memcpy(conn_room(conn, (size_t)len), text, (size_t)len);
    conn_add(conn, (size_t)len);
}

void conn_lend(struct conn *conn, const char *data, size_t size) {
    conn->loan = data;
    conn->loan_len = size;
}

bool conn_idle(const struct conn *conn) {
    return conn->out_start == conn->out_end && !conn->loan_len && !conn->unsent;
}

void conn_subscribe_inbox(struct conn *conn) { conn_print(conn, "SUB %s.* 1\r\n", conn->inbox); }

uint64_t conn_token(const struct conn *conn, const struct frame *f) {
    if (f->subject_len <= INBOX_LEN + 1 || memcmp(f->subject, conn->inbox, INBOX_LEN) != 0)
        return UINT64_MAX;
    return token_read(f->subject + INBOX_LEN + 1, f->subject_len - INBOX_LEN - 1);
}

static void flush(struct conn *conn) {
    conn->unsent = !channel_sent(conn->channel);
    if (conn->unsent)
        return;
    if (conn->out_start < conn->out_end)
        conn->out_start +=
            channel_send(conn->channel, conn->out + conn->out_start, conn->out_end - conn->out_start);
    if (conn->out_start == conn->out_end && conn->loan_len) {
        size_t sent = channel_send(conn->channel, conn->loan, conn->loan_len);
        conn->loan += sent;
        conn->loan_len -= sent;
    }
    conn->unsent = !channel_sent(conn->channel);
}

static void watch(struct conn *conn) {
    uint32_t events = EPOLLIN | (conn->hungry || !conn_idle(conn) ? (uint32_t)EPOLLOUT : 0);
    if (events == conn->events)
        return;
    struct epoll_event event = {.events = events, .data.ptr = conn};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, conn->fd, &event) != 0)
        fail("epoll_ctl: %s", strerror(errno));
    conn->events = events;
}

static void let_role_build(struct conn *conn) {
    if (!conn->active || !conn->role->on_turn)
        return;
    conn->hungry = false;
    conn->role->on_turn(conn);
}

void conn_turn(struct conn *conn) {
    bool blocked = !conn_idle(conn);
    let_role_build(conn);
    flush(conn);
    if (blocked && conn_idle(conn)) {
        /* The role may have held back for output that left just now, a PONG for example; no event will
         * come to tell it so. */
        let_role_build(conn);
        flush(conn);
    }
    watch(conn);
}

/* Keep the first INFO for CONNECT. */
static void keep_info(struct conn *conn, const struct frame *f) {
    if (conn->greeted)
        return;
    conn->greeted = true;
    conn->info = must_alloc(f->line_len);
    conn->info_len = f->line_len;
    memcpy(conn->info, f->line, f->line_len);
}

static void handle(struct conn *conn, const struct frame *f) {
    if (f->op == OP_MSG && conn->role->on_msg)
        conn->role->on_msg(conn, f);
    else if (f->op == OP_MSG)
        fail("a message for nobody: %.*s", (int)f->line_len, f->line);
    else if (f->op == OP_PING)
        conn_print(conn, "PONG\r\n");
    else if (f->op == OP_PONG)
        conn->pong = true;
    else if (f->op == OP_INFO)
        keep_info(conn, f);
    else if (f->op == OP_ERR)
        fail("the server said %.*s", (int)f->line_len, f->line);
}

/* Be woken when so many bytes are there, as a blocking reader of large messages would: not for each packet. */
static void wait_for(struct conn *conn, size_t missing) {
    int least = missing < LARGE ? 1 : missing < LEAST_MAX ? (int)missing : LEAST_MAX;
    if (least == conn->least || !channel_is_plain(conn->channel))   /* records are smaller than messages */
        return;
    conn->least = least;
    setsockopt(conn->fd, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least);
}

static void cut_up(struct conn *conn) {
    struct frame frame;
    for (;;) {
        size_t n = frame_cut(conn->in + conn->in_start, conn->in_end - conn->in_start, &frame);
        if (frame.op == OP_BAD)
            fail("not an operation of the protocol: %.*s", (int)(frame.line_len > 200 ? 200 : frame.line_len),
                 frame.line);
        if (frame.op == OP_MORE) {
            wait_for(conn, frame.missing);
            return;
        }
        handle(conn, &frame);
        conn->in_start += n;
    }
}

/* Make room behind what is still uncut; an operation larger than the buffer doubles it. */
static void make_room(struct conn *conn) {
    size_t left = conn->in_end - conn->in_start;
    memmove(conn->in, conn->in + conn->in_start, left);
    conn->in_start = 0;
    conn->in_end = left;
    if (left < conn->in_size / 2)
        return;
    conn->in_size *= 2;
    conn->in = realloc(conn->in, conn->in_size);
    if (!conn->in)
        fail("no memory for %zu bytes of input", conn->in_size);
}

static void read_some(struct conn *conn) {
    ssize_t n;
    do {    /* again without an event: decrypted or unframed bytes raise none */
        make_room(conn);
        size_t room = conn->in_size - conn->in_end;
        n = channel_read(conn->channel, conn->in + conn->in_end, room);
        if (n == 0)
            fail("the server closed the connection");
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            fail("recv: %s", strerror(errno));
        if (n > 0) {
            conn->in_end += (size_t)n;
            cut_up(conn);
        }
    } while (n > 0 && channel_holds(conn->channel));
}

void loop_until(const bool *done) {
    struct epoll_event events[64];
    while (!*done) {
        int n = epoll_wait(epoll_fd, events, 64, timeout_ms);
        if (n < 0 && errno != EINTR)
            fail("epoll_wait: %s", strerror(errno));
        if (n == 0)
            fail("nothing came for %d s: something was lost", timeout_ms / 1000);
        for (int i = 0; i < n && !*done; i++) {
            struct conn *conn = events[i].data.ptr;
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                read_some(conn);
            conn_turn(conn);
        }
    }
}

void conn_fence(struct conn *conn) {
    conn->pong = false;
    conn_print(conn, "PING\r\n");
    conn_turn(conn);
    loop_until(&conn->pong);
}

/* One operation as the server sends it, cut out of the receive buffer in place. */
#include "frame.h"

#include "util.h"

#include <string.h>

/* Split `line` at single spaces, at most `max` parts; return how many there are. */
static int split(const char *line, const char *end, const char **parts, uint32_t *lens, int max) {
    int count = 0;
    while (count < max) {
        const char *space = memchr(line, ' ', (size_t)(end - line));
        const char *stop = space ? space : end;
        parts[count] = line;
        lens[count++] = (uint32_t)(stop - line);
        if (!space)
            return count;
        line = space + 1;
    }
    return max + 1;
}

static int64_t number(const char *text, uint32_t len) {
    const char *at = text;
    int64_t value = digits_read(&at, text + len);
    return at == text + len ? value : -1;
}

/* MSG subject sid [reply] size / HMSG subject sid [reply] header_size size */
static size_t cut_message(const char *data, size_t n, struct frame *f, int head_len, int with_header) {
    const char *parts[5];
    uint32_t lens[5];
    const char *end = f->line + f->line_len;
    int fixed = 3 + with_header;
    int count = split(f->line + head_len, end, parts, lens, 5);
    if (count != fixed && count != fixed + 1)
        return f->op = OP_BAD, 0;
    int64_t size = number(parts[count - 1], lens[count - 1]);
    int64_t header_len = with_header ? number(parts[count - 2], lens[count - 2]) : 0;
    int64_t sid = number(parts[1], lens[1]);
    if (size < 0 || header_len < 0 || header_len > size || sid < 0)
        return f->op = OP_BAD, 0;
    const char *body = end + 2;
    size_t total = (size_t)(body - data) + (size_t)size + 2;
    if (n < total)
        return f->missing = total - n, f->op = OP_MORE, 0;
    if (body[size] != '\r' || body[size + 1] != '\n')
        return f->op = OP_BAD, 0;
    f->op = OP_MSG;
    f->subject = parts[0];
    f->subject_len = lens[0];
    f->sid = (uint32_t)sid;
    f->reply = count > fixed ? parts[2] : NULL;
    f->reply_len = count > fixed ? lens[2] : 0;
    f->header = with_header ? body : NULL;
    f->header_len = (uint32_t)header_len;
    f->payload = body + header_len;
    f->payload_len = (uint32_t)(size - header_len);
    return total;
}

static enum op op_of(const struct frame *f) {
    if (f->line_len >= 4 && memcmp(f->line, "PING", 4) == 0)
        return OP_PING;
    if (f->line_len >= 4 && memcmp(f->line, "PONG", 4) == 0)
        return OP_PONG;
    if (f->line_len >= 3 && memcmp(f->line, "+OK", 3) == 0)
        return OP_OK;
    if (f->line_len >= 4 && memcmp(f->line, "-ERR", 4) == 0)
        return OP_ERR;
    if (f->line_len >= 5 && memcmp(f->line, "INFO ", 5) == 0)
        return OP_INFO;
    return OP_BAD;
}

size_t frame_cut(const char *data, size_t n, struct frame *f) {
    const char *newline = n ? memchr(data, '\n', n) : NULL;
    f->missing = 1;
    if (!newline)
        return f->op = OP_MORE, 0;
    f->line = data;
    if (newline == data || newline[-1] != '\r') {
        f->line_len = (uint32_t)(newline - data);
        return f->op = OP_BAD, 0;
    }
    f->line_len = (uint32_t)(newline - data - 1);
    if (f->line_len > 4 && memcmp(data, "MSG ", 4) == 0)
        return cut_message(data, n, f, 4, 0);
    if (f->line_len > 5 && memcmp(data, "HMSG ", 5) == 0)
        return cut_message(data, n, f, 5, 1);
    f->op = op_of(f);
    return f->op == OP_BAD ? 0 : (size_t)(newline + 1 - data);
}

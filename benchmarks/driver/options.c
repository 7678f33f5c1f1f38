/* The command line: one set of flags for all subcommands, each uses what it needs. */
#include "options.h"

#include "payload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char USAGE[] =
    "usage: natsload COMMAND --port P [flags]\n"
    "  pub     publish to nobody, fence with PING/PONG      --msgs --size --publishers --subjects --fresh\n"
    "  pubsub  publishers to subscribers                    --msgs --size --publishers --subscribers --window --fresh\n"
    "  reqrep  requests to a responder in this process      --msgs --size --connections --window\n"
    "  jspub   JetStream publish, acks in a window          --msgs --size --publishers --window --subjects --msg-id --fresh --rate\n"
    "  jssync  JetStream publish, one outstanding each      --msgs --size --connections\n"
    "  pull    pull consumer over a stream filled first     --msgs --size --batch --ack explicit|none --connections\n"
    "  mirror  a mirror catching up with a filled stream    --msgs --size --subjects\n"
    "  source  the same with a source                       --msgs --size --subjects\n"
    "  bulk    bulk reads of a stream filled first           --msgs --size --subjects --window BYTES --unchecked\n"
    "  direct  direct get of the last message of a subject  --msgs --size --subjects --connections --window\n"
    "  shake   connect, TLS handshake, CONNECT, PONG, leave --msgs --connections --rate\n"
    "  refused log in with a wrong password, be refused     --msgs --connections --rate\n"
    "  spawn   exec a server, time to its first PONG (--port 0: time to its exit)  -- COMMAND ARG...\n"
    "common: --host --storage file|memory --replicas --keep --timeout SECONDS --server-pid PID --tls --ws --deflate\n"
    "        --user NAME --password P --far-user NAME --far-port P --creds FILE\n";

static void usage(const char *what, const char *which) {
    fprintf(stderr, "natsload: %s%s\n%s", what, which, USAGE);
    exit(2);
}

static uint64_t count_of(const char *flag, const char *text) {
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end)
        usage("not a number after ", flag);
    return value;
}

static bool is(const char *text, const char *other) { return strcmp(text, other) == 0; }

/* Set one flag that has a value; false when it is unknown. */
static bool set(struct options *o, const char *flag, const char *text) {
    if (is(flag, "--host"))
        o->host = text;
    else if (is(flag, "--port"))
        o->port = (int)count_of(flag, text);
    else if (is(flag, "--far-port"))
        o->far_port = (int)count_of(flag, text);
    else if (is(flag, "--msgs"))
        o->msgs = count_of(flag, text);
    else if (is(flag, "--size"))
        o->size = (uint32_t)count_of(flag, text);
    else if (is(flag, "--publishers"))
        o->publishers = (int)count_of(flag, text);
    else if (is(flag, "--subscribers"))
        o->subscribers = (int)count_of(flag, text);
    else if (is(flag, "--connections"))
        o->connections = (int)count_of(flag, text);
    else if (is(flag, "--window"))
        o->window = count_of(flag, text);
    else if (is(flag, "--subjects"))
        o->subjects = (uint32_t)count_of(flag, text);
    else if (is(flag, "--batch"))
        o->batch = (uint32_t)count_of(flag, text);
    else if (is(flag, "--ack"))
        o->ack = is(text, "explicit");
    else if (is(flag, "--storage"))
        o->storage = text;
    else if (is(flag, "--replicas"))
        o->replicas = (uint32_t)count_of(flag, text);
    else if (is(flag, "--user"))
        o->user = text;
    else if (is(flag, "--password"))
        o->password = text;
    else if (is(flag, "--far-user"))
        o->far_user = text;
    else if (is(flag, "--creds"))
        o->creds = text;
    else if (is(flag, "--rate"))
        o->rate = (uint32_t)count_of(flag, text);
    else if (is(flag, "--timeout"))
        o->timeout_s = (int)count_of(flag, text);
    else if (is(flag, "--server-pid"))
        o->server_pid = (int)count_of(flag, text);
    else
        return false;
    return true;
}

static void check(const struct options *o) {
    if (o->size < PAYLOAD_MIN || o->size > 8 << 20)
        usage("--size must be 16..8388608", "");
    if (o->publishers < 1 || o->subscribers < 1 || o->connections < 1 || !o->subjects || !o->batch || !o->msgs)
        usage("counts must be at least 1", "");
    if (o->creds && o->tls)
        usage("--creds with --tls: the nonce comes before TLS, where it is not read", "");
}

struct options options_far(const struct options *o) {
    struct options far = *o;
    if (o->far_user)
        far.user = o->far_user;
    if (o->far_port)
        far.port = o->far_port;
    return far;
}

void options_settle(const struct options *o) {
    if (o->far_port)
        usleep(300000);
}

void options_parse(struct options *o, int argc, char **argv) {
    *o = (struct options){.host = "127.0.0.1", .msgs = 100000, .size = 128, .publishers = 1, .subscribers = 1,
                          .connections = 1, .subjects = 1, .batch = 500, .ack = true, .storage = "file", .replicas = 1,
                          .timeout_s = 30};
    if (argc < 2)
        usage("a command is missing", "");
    o->command = argv[1];
    for (int i = 2; i < argc; i++) {
        if (is(argv[i], "--")) {
            o->rest = argv + i + 1;
            break;
        } else if (is(argv[i], "--msg-id"))
            o->msg_id = true;
        else if (is(argv[i], "--fresh"))
            o->fresh = true;
        else if (is(argv[i], "--keep"))
            o->keep = true;
        else if (is(argv[i], "--unchecked"))
            o->unchecked = true;
        else if (is(argv[i], "--tls"))
            o->tls = true;
        else if (is(argv[i], "--ws"))
            o->ws = true;
        else if (is(argv[i], "--deflate"))
            o->ws = o->deflate = true;
        else if (i + 1 == argc)
            usage("unknown flag or missing value: ", argv[i]);
        else if (!set(o, argv[i], argv[i + 1]))
            usage("unknown flag: ", argv[i]);
        else
            i++;
    }
    check(o);
}

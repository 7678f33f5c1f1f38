/* The command line: one set of flags for all subcommands, each uses what it needs. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct options {
    const char *command;
    const char *host;
    int port;
    uint64_t msgs;           /* what is counted: see each subcommand */
    uint32_t size;           /* payload bytes */
    int publishers;
    int subscribers;
    int connections;
    uint64_t window;         /* outstanding per connection; pubsub: messages in flight, 0 = 4 MiB of them */
    uint32_t subjects;       /* distinct subjects */
    uint32_t batch;          /* of a pull request */
    bool ack;                /* pull: explicit acks */
    const char *storage;     /* file or memory */
    uint32_t replicas;       /* of the stream */
    const char *user;        /* of CONNECT, with `password`; NULL: none */
    const char *password;
    const char *far_user;    /* of the responder, the subscribers and the JetStream API; NULL: `user` */
    int far_port;            /* of the server of that side, another one of a cluster; 0: `port` */
    const char *creds;       /* file with a token and a seed; NULL: none */
    bool msg_id;             /* jspub: a distinct Nats-Msg-Id on each message */
    bool fresh;              /* pub, pubsub, jspub: each message has a subject that was never used before */
    bool keep;               /* leave the stream behind */
    bool ws;                 /* WebSocket */
    bool deflate;            /* WebSocket with compression */
    bool tls;                /* encrypt after INFO; any certificate is accepted */
    bool unchecked;          /* bulk: the server need not check the records */
    int timeout_s;           /* without a byte from the server */
    uint32_t rate;           /* doors: visits that begin in a second, jspub: messages; 0: as many as possible */
    int server_pid;          /* its CPU and peak RSS are reported; 0: not measured */
    char **rest;             /* what follows "--" */
};

/* Return the options of the side that `far_user` is. */
struct options options_far(const struct options *options);

/* Wait until the other server of the cluster knows the subscriptions of that side, which nothing tells. */
void options_settle(const struct options *options);

/* Parse the command line, or print what is wrong and leave with status 2. */
void options_parse(struct options *options, int argc, char **argv);

#endif

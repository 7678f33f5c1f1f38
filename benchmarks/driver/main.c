/* natsload: a load driver for NATS servers that checks what it sent and got.
 *
 * One thread and one epoll loop (but shake and refused: a thread for each visitor), so that it costs clearly less than any server it measures; output is
 * built in bulk, input is read in place. One subcommand per kind of work; see options.c for the flags
 * and benchmarks/README.md for what each one verifies.
 */
#include "commands.h"
#include "meter.h"
#include "payload.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(const struct options *options);
} COMMANDS[] = {{"pub", cmd_pub},       {"pubsub", cmd_pubsub}, {"reqrep", cmd_reqrep}, {"jspub", cmd_jspub},
                {"jssync", cmd_jssync}, {"pull", cmd_pull},     {"direct", cmd_direct}, {"mirror", cmd_mirror},
                {"source", cmd_source}, {"bulk", cmd_bulk},     {"spawn", cmd_spawn},
                {"shake", cmd_shake},   {"refused", cmd_refused}};

int main(int argc, char **argv) {
    struct options options;
    options_parse(&options, argc, argv);
    for (size_t i = 0; i < sizeof COMMANDS / sizeof *COMMANDS; i++)
        if (strcmp(COMMANDS[i].name, options.command) == 0) {
            meter_init(&options);
            payload_init(options.size);
            return COMMANDS[i].run(&options);
        }
    fprintf(stderr, "natsload: unknown command %s\n", options.command);
    return 2;
}

/* The subcommands. Each runs once, prints its result line and returns the exit status. */
#ifndef COMMANDS_H
#define COMMANDS_H

#include "options.h"

int cmd_pub(const struct options *options);
int cmd_pubsub(const struct options *options);
int cmd_reqrep(const struct options *options);
int cmd_jspub(const struct options *options);
int cmd_jssync(const struct options *options);
int cmd_pull(const struct options *options);
int cmd_bulk(const struct options *options);
int cmd_mirror(const struct options *options);
int cmd_source(const struct options *options);
int cmd_direct(const struct options *options);
int cmd_shake(const struct options *options);
int cmd_refused(const struct options *options);
int cmd_spawn(const struct options *options);

#endif

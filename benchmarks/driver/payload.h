/* The content of every message: who sent it, its number, and bytes that depend on the number.
 *
 * Layout, little endian: publisher u32, size u32, index u64, then fill: a slice of one fixed random
 * table that starts at (index & 255), so a payload that was cut, shifted, repeated or mixed with its
 * neighbour does not match. The smallest payload is the 16 byte head.
 */
#ifndef PAYLOAD_H
#define PAYLOAD_H

#include <stdbool.h>
#include <stdint.h>

#define PAYLOAD_MIN 16

void payload_init(uint32_t size_max);
void payload_write(char *out, uint32_t size, uint32_t publisher, uint64_t index);
/* Read a payload back; false when any byte differs from what payload_write makes. */
bool payload_read(const char *data, uint32_t size, uint32_t *publisher, uint64_t *index);

#endif

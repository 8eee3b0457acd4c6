/* Two checkpoints, tensor by tensor. Thread: the main one. */
#ifndef LILY_CMD_QUANTIZE_CHECK_H
#define LILY_CMD_QUANTIZE_CHECK_H

#include <stdbool.h>

#include "base/err.h"

/* Prints what differs (not as JSON), and is LILY_ERR_FORMAT when anything does: a name, dtype, shape, byte, or the bits of a module. */
lily_status quantize_check(const char *a, const char *b, bool json, struct lily_err *err);

#endif

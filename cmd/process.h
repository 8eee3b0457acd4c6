/* What is settled with the system before a command runs. Thread: the main one, before there are others. */
#ifndef LILY_CMD_PROCESS_H
#define LILY_CMD_PROCESS_H

#include <stdbool.h>

/*
 * Occupies standard descriptors that are closed, so that no file that is opened later takes the place of one; makes a write to
 * a closed pipe or past a size limit fail instead of ending the process; makes a model file that shrinks while it is read an
 * error line and status 1; raises a stack limit that is too low for kernels, if it may.
 */
void process_init(void);

/* Whether that error is printed to stdout as JSON, too. */
void process_json(bool json);
/* The error of a command that a signal ends, where it is asked for as JSON; for signal handlers. */
void process_interrupted(void);

#endif

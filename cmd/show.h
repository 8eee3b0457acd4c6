/*
 * Making an answer in front of a person: shown on the screen, stopped by Ctrl-C, its counts as JSON or as one line.
 * Thread: the main one.
 */
#ifndef LILY_CMD_SHOW_H
#define LILY_CMD_SHOW_H

#include "json/json.h"
#include "run/answer.h"
#include "screen.h"

/* Fills in the callbacks and the cancel flag of job. screen NULL: nothing is shown. progress: a bar on stderr while reading. */
lily_status show_answer(struct answer_job *job, struct screen *screen, bool progress, struct answer *out, struct lily_err *err);

struct json *show_usage(const struct answer *a);
struct json *show_timings(const struct answer *a, double load_ms);
/* One line on stderr: tokens read, cached, written, and both speeds. */
void show_report(const struct answer *a);

#endif

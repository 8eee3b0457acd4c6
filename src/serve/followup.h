/*
 * After an answer: the beginning of the prompt that the same conversation will probably send next, for the engine to read while
 * nothing else is to do. It is the conversation with the answer in it, as the template renders it in front of a user's message,
 * or of a tool's result when the answer called one.
 *
 * Made on L from a call that is over, rendered on P. Owned: followup_free.
 */
#ifndef LILY_SERVE_FOLLOWUP_H
#define LILY_SERVE_FOLLOWUP_H

#include "serve/call.h"

struct followup;

/* Takes the conversation out of a call whose answers have ended. NULL: nothing is to be expected of it. */
struct followup *followup_of(struct call *c);
/* Renders it and hands it to the engine. On P. */
void followup_run(struct followup *moved);
void followup_free(struct followup *f);

/* The queue's link. */
struct followup **followup_next(struct followup *f);

#endif

/*
 * The threads P: they prepare calls, so that parsing and tokenizing a long request never holds up a socket. One has the
 * calls with short bodies, one those with long ones, which may take seconds; each in the order in which they came. Owned:
 * prep_free, which joins them.
 */
#ifndef LILY_SERVE_PREP_H
#define LILY_SERVE_PREP_H

#include "base/err.h"

struct call;
struct loop;
struct prep;

/* When calls are ready, the loop is woken. */
lily_status prep_start(struct loop *l, struct prep **out, struct lily_err *err);
void prep_free(struct prep *p); /* NULL is fine. Calls that are still inside are dropped: nobody waits for them */
void prep_add(struct prep *p, struct call *moved);
struct followup;
void prep_add_followup(struct prep *p, struct followup *moved); /* done when no long call waits; the newest few are kept */
struct call *prep_take(struct prep *p); /* the next one that is ready, or NULL */

#endif

/*
 * A session: one sequence of tokens on a model, and the borders saved along it.
 *
 * The caller says what the context must be, never how to edit it: session_sync(ids) makes the context exactly ids, going on
 * from the live state only if no decode step has touched it, else from the deepest saved border that is a proper prefix, else
 * from nothing. session_step decodes one token more. Borders hold prefill state on the grid of 64 only, so an answer is the
 * same cached or cold (ARCHITECTURE.md, State). There is no truncate.
 *
 * Threads: the engine thread. Lifetime: the model outlives the session.
 */
#ifndef LILY_RUN_SESSION_H
#define LILY_RUN_SESSION_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/err.h"
#include "model/model.h"
#include "sample/sampler.h"

struct session;

struct session_options {
    int ctx;         /* tokens this session may hold, at most the plan's */
    int piece;       /* rows of a prefill piece, a multiple of 64, at most the model's max_rows; 0: the model's */
    int max_borders; /* memory for so many saved states; the least valuable goes first. 0: none */
    bool takes_up;   /* a long piece that was stopped inside waits for the same tokens; the model reads for nobody else meanwhile */
};

lily_status session_new(struct model *m, const struct session_options *o, struct session **out, struct lily_err *err);
void session_free(struct session *s);

struct sync_request {
    const int32_t *ids; /* borrowed during the call */
    int n;              /* >= 1 */
    const int *marks;   /* token positions (rendering marks) before which borders are worth saving; rising; may be NULL */
    int n_marks;
    const atomic_bool *cancel; /* polled between layers; may be NULL. What was read before the present piece stays in the session;
                                  with takes_up that piece, too, where it can be set aside */
    void (*progress)(void *ctx, int done, int total); /* tokens computed of those to compute; may be NULL */
    void *progress_ctx;
};

struct sync_result {
    int reused;   /* tokens taken from the live state or a border; of a piece that was set aside, the share that its layers are */
    int computed; /* n - reused; of a sync that was stopped, as much as stays */
};

/* Makes the context exactly ids and leaves the logits of the last one in session_logits. LILY_ERR_LIMIT when n > ctx. */
lily_status session_sync(struct session *s, const struct sync_request *r, struct sync_result *out,
                         struct lily_err *err);
/* Feeds one more token through the decode path; logits follow. */
lily_status session_step(struct session *s, int32_t id, struct lily_err *err);
/*
 * One answer: a sampler's tokens behind the context, until the next session_sync. The device chooses them where it can, so
 * session_logits stay those of the prompt then. eos: ids that end the answer. All is borrowed until then.
 */
void session_answer(struct session *s, struct sampler *sampler, const int32_t *eos, int n_eos);
lily_status session_pick(struct session *s, int32_t *id, struct lily_err *err);
/* Feeds what session_pick gave. goes_on: so will be what it gives next, unless it is one of eos. */
lily_status session_feed(struct session *s, int32_t id, bool goes_on, struct lily_err *err);
/* Saves a border at the present length: LILY_ERR_USAGE off the grid or after a decode step. */
lily_status session_checkpoint(struct session *s, struct lily_err *err);
/* Drops the context and every border. */
void session_clear(struct session *s);

struct borders;
struct borders *session_borders(struct session *s); /* borrowed; the states saved so far */
float *session_logits(struct session *s); /* (vocab), of the last token; may be changed by the sampler; valid until the next call */
int session_length(const struct session *s);
const int32_t *session_ids(const struct session *s); /* (length) */

#endif

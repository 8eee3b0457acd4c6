/*
 * The saved states of one prompt in one file (lily run --prompt-cache): what a later run with the same beginning does not read
 * again.
 *
 * The file is a head, the token ids, the lengths of up to 8 states along them, a sum for each part, then the parts as the
 * backend gives them: KV pages by position, then the states' own. Everything is tied to a key (run/state_key.h) and checked
 * before it is used. Written atomically, mode 0600. Engine thread.
 */
#ifndef LILY_RUN_PROMPT_FILE_H
#define LILY_RUN_PROMPT_FILE_H

#include "run/session.h"

/*
 * Takes the states of a file into the session. A file that is not there, or of another model, build or device, is no failure:
 * nothing is taken, and the reason is said. A damaged one is named, renamed to PATH.damaged, and not used.
 */
lily_status prompt_file_load(const char *path, struct model *m, struct session *s, struct lily_err *err);
/* Writes the states that the session has along its present tokens; nothing when there are none. */
lily_status prompt_file_save(const char *path, struct model *m, struct session *s, struct lily_err *err);

#endif

/*
 * How other programs of this kind call what lily has (llama.cpp, ollama, vLLM, mlx-lm, transformers): for hints, never for parsing.
 * Any thread.
 */
#ifndef LILY_CMD_FOREIGN_H
#define LILY_CMD_FOREIGN_H

struct foreign {
    const char *name;   /* without dashes in front; "_" is written "-" */
    const char *own;    /* lily's option, without dashes; NULL: it has none */
    const char *advice; /* what to do for a command without that; it names no options, which other commands lack; or NULL */
};
/* The option of that name, with "-" or "_"; NULL for a name that is not known. */
const struct foreign *foreign_option(const char *name);
/* Lily's name of a command, or NULL. */
const char *foreign_command(const char *name);

#endif

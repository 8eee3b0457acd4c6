/*
 * How other programs of this kind call what lily has (llama.cpp, ollama, vLLM, mlx-lm, transformers): for hints, never for parsing.
 * Any thread.
 */
#ifndef LILY_CMD_FOREIGN_H
#define LILY_CMD_FOREIGN_H

struct foreign {
    const char *name;   /* without dashes in front; "_" is written "-" */
    const char *own;    /* lily's option or command, without dashes; NULL: it has none */
    const char *advice; /* what to do for a command without that option, where it names none, or without that command; or NULL */
};
/* The option of that name, with "-" or "_"; NULL for a name that is not known. */
const struct foreign *foreign_option(const char *name);
/* The command of that name, or NULL. */
const struct foreign *foreign_command(const char *name);
/* Lily's name of a slash command of a chat, both without the slash, or NULL. */
const char *foreign_slash(const char *name);

#endif

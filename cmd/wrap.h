/*
 * Breaking lines of streaming text between words at the width of a terminal.
 *
 * A word is shown as it comes; when it turns out not to fit, it is erased and written again on the next line. Lines inside a code
 * fence (```) are left to the terminal, so that they can be copied as they are. Thread: the main one. Owned: wrap_free.
 */
#ifndef LILY_CMD_WRAP_H
#define LILY_CMD_WRAP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct wrap {
    int width;       /* cells of a line that are used; 0: no breaking */
    int column;      /* cells used of this line */
    int word_cells;
    struct buf word; /* owned; what is shown of the word under way */
    char mark[4];    /* the first bytes of the line that are no spaces */
    bool code;       /* inside a code fence */
};

void wrap_init(struct wrap *w);
/* Looks at the terminal's size again; call before each piece. columns: 0 when unknown. */
void wrap_width(struct wrap *w, int columns);
/* Appends n bytes of text (no control characters but tab and line feed) with the breaks and erasures it needs. */
void wrap_text(struct wrap *w, const char *text, size_t n, struct buf *out);
void wrap_free(struct wrap *w);

#endif

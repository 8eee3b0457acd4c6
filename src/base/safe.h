/*
 * Text from outside, made safe for a terminal: control characters become visible instead of being obeyed. Any thread.
 */
#ifndef LILY_BASE_SAFE_H
#define LILY_BASE_SAFE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/*
 * Appends n bytes to out; ESC and the other C0 controls become ^[ and the like, DEL ^?, the C1 controls (U+0080 … U+009F) <U+009B>, bytes
 * that are no UTF-8 <C2>. Tabs stay; line feeds stay when lines is true, and become a space otherwise. The text is taken as
 * it is, in whole characters.
 */
void safe_text(struct buf *out, const char *text, size_t n, bool lines);

#endif

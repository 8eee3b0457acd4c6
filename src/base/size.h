/* Sizes for people to read. Any thread. */
#ifndef LILY_BASE_SIZE_H
#define LILY_BASE_SIZE_H

struct size_text {
    char s[32];
};
struct size_text size_text(double bytes);
/* "19.51 GB", "845 MB", "2.1 MB", "8.7 kB", "12 B": a text that lives until the end of the expression. */
#define SIZE_TEXT(bytes) (size_text((double)(bytes)).s)

#endif

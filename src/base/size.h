/*
 * Sizes for people to read, in powers of 1024 like those that the options take: --memory-limit 24G is shown as 24.00 GiB.
 * Any thread.
 */
#ifndef LILY_BASE_SIZE_H
#define LILY_BASE_SIZE_H

#define KIB 0x1p10
#define MIB 0x1p20
#define GIB 0x1p30

struct size_text {
    char s[32];
};
struct size_text size_text(double bytes);
/* "18.17 GiB", "845 MiB", "2.1 MiB", "8.7 KiB", "12 B": a text that lives until the end of the expression. */
#define SIZE_TEXT(bytes) (size_text((double)(bytes)).s)

#endif

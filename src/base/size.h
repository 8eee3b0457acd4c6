/*
 * Sizes and counts, for people to read, and as people write them. Shown are powers of 1024, which K, M and G of the options are, too:
 * --memory-limit 24G is shown as 24.00 GiB. Any thread.
 */
#ifndef LILY_BASE_SIZE_H
#define LILY_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "lily/status.h"

#define KIB 0x1p10
#define MIB 0x1p20
#define GIB 0x1p30

struct size_text {
    char s[48];
};
struct size_text size_text(double bytes);
/* "18.17 GiB", "845 MiB", "2.1 MiB", "8.7 KiB", "12 B": a text that lives until the end of the expression. */
#define SIZE_TEXT(bytes) (size_text((double)(bytes)).s)

/* "1 token", "2 tokens", likewise. */
struct size_text count_text(long long n, const char *noun);
#define COUNT_TEXT(n, noun) (count_text((long long)(n), noun).s)

/*
 * The size that a person wrote, at most 2^60 bytes: digits, perhaps a dot and more of them, perhaps a space, and a unit in either
 * case. K, M, G, T and KiB, MiB, GiB, TiB are powers of 1024, KB, MB, GB, TB powers of 1000, B is bytes. Bytes may go without a unit
 * from a mebibyte on, and 0: who writes 20 means no 20 bytes. LILY_ERR_USAGE says what is wrong.
 */
lily_status size_parse(const char *text, size_t *out, struct lily_err *err);
/* A whole number up to 2^60, with K, M or G for powers of 1024; false for what is none. */
bool count_parse(const char *text, long long *out);

#endif

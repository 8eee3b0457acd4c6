/* JSON text, events, ids. */
#include "serve/write.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

void put_string(struct buf *out, const char *s, size_t n)
{
    buf_addc(out, '"');
    json_write_escaped(s, n, out);
    buf_addc(out, '"');
}

void put_stringz(struct buf *out, const char *s)
{
    put_string(out, s, strlen(s));
}

void put_member(struct buf *out, const char *key, const char *s, size_t n)
{
    buf_printf(out, "\"%s\":", key);
    put_string(out, s, n);
}

void put_memberz(struct buf *out, const char *key, const char *s)
{
    put_member(out, key, s, strlen(s));
}

void put_number(struct buf *out, double v, int decimals)
{
    if (isfinite(v)) buf_printf(out, "%.*f", decimals, v);
    else buf_addz(out, "null");
}

void sse_begin(struct buf *out, const char *name)
{
    if (name) buf_printf(out, "event: %s\n", name);
    buf_addz(out, "data: ");
}

void sse_end(struct buf *out)
{
    buf_addz(out, "\n\n");
}

static void random_bytes(void *out, size_t n)
{
    if (getrandom(out, n, 0) == (ssize_t)n) return;
    /* Without a source of randomness ids are still different from each other. */
    static _Atomic uint64_t count;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t v = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec + ++count * 0x9E3779B97F4A7C15u;
    for (size_t i = 0; i < n; i++) ((unsigned char *)out)[i] = (unsigned char)(v >> (i % 8 * 8)) ^ (unsigned char)(i * 31);
}

void make_id(char *out, size_t size, const char *prefix)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuv";
    unsigned char r[24];
    char text[sizeof r + 1] = "";
    random_bytes(r, sizeof r);
    for (size_t i = 0; i < sizeof r; i++) text[i] = letters[r[i] % 32];
    snprintf(out, size, "%s%s", prefix, text);
}

uint64_t random_number(void)
{
    uint64_t v;
    random_bytes(&v, sizeof v);
    return v >> 11;
}

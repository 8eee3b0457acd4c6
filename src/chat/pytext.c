/* Python string operations of the chat template. */
#include "chat/pytext.h"

#include <string.h>

#include "base/utf8.h"

bool py_is_space(unsigned c)
{
    if (c <= ' ') return c == ' ' || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

struct range py_strip(struct range r)
{
    size_t used;
    while (r.n > 0 && py_is_space(utf8_decode(r.s, r.n, &used))) {
        r.s += used;
        r.n -= used;
    }
    while (r.n > 0) {
        size_t start = r.n - 1;
        while (start > 0 && r.n - start < 4 && ((unsigned char)r.s[start] & 0xc0) == 0x80) start--;
        if (!py_is_space(utf8_decode(r.s + start, r.n - start, &used)) || start + used != r.n) break;
        r.n = start;
    }
    return r;
}

struct range py_lstrip_newlines(struct range r)
{
    while (r.n > 0 && r.s[0] == '\n') {
        r.s++;
        r.n--;
    }
    return r;
}

struct range py_rstrip_newlines(struct range r)
{
    while (r.n > 0 && r.s[r.n - 1] == '\n') r.n--;
    return r;
}

bool py_starts_with(struct range r, const char *prefix)
{
    size_t n = strlen(prefix);
    return r.n >= n && memcmp(r.s, prefix, n) == 0;
}

bool py_ends_with(struct range r, const char *suffix)
{
    size_t n = strlen(suffix);
    return r.n >= n && memcmp(r.s + r.n - n, suffix, n) == 0;
}

bool py_find(struct range r, const char *word, size_t *at)
{
    const char *p = r.n ? memmem(r.s, r.n, word, strlen(word)) : NULL;
    if (p) *at = (size_t)(p - r.s);
    return p != NULL;
}

bool py_find_last(struct range r, const char *word, size_t *at)
{
    size_t next, base = 0, n = strlen(word);
    bool found = false;
    while (py_find((struct range){r.s + base, r.n - base}, word, &next)) {
        *at = base + next;
        base += next + n;
        found = true;
    }
    return found;
}

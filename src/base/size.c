/* Sizes and counts: as text, with three or four digits of a size, and from text. */
#include "base/size.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"

static const double most = 0x1p60;

struct size_text size_text(double bytes)
{
    struct size_text t;
    if (bytes >= GIB) snprintf(t.s, sizeof t.s, "%.2f GiB", bytes / GIB);
    else if (bytes >= MIB) snprintf(t.s, sizeof t.s, bytes >= 100 * MIB ? "%.0f MiB" : "%.1f MiB", bytes / MIB);
    else if (bytes >= KIB) snprintf(t.s, sizeof t.s, "%.1f KiB", bytes / KIB);
    else snprintf(t.s, sizeof t.s, "%.0f B", bytes);
    return t;
}

struct size_text count_text(long long n, const char *noun)
{
    struct size_text t;
    snprintf(t.s, sizeof t.s, "%lld %.20s%s", n, noun, n == 1 ? "" : "s");
    return t;
}

/* The bytes of "K", "KiB", "KB" and the like, and of "B"; 0 for what is no unit. */
static double unit_bytes(const char *unit)
{
    static const char letters[] = "KMGT";
    double bytes = 1;
    if (strcasecmp(unit, "B") == 0) return 1;
    const char *p = *unit ? strchr(letters, toupper((unsigned char)*unit)) : NULL;
    bool of_1000 = strcasecmp(unit + (p != NULL), "B") == 0;
    if (!p || (unit[1] && !of_1000 && strcasecmp(unit + 1, "iB") != 0)) return 0;
    for (long i = 0; i <= p - letters; i++) bytes *= of_1000 ? 1000 : 1024;
    return bytes;
}

/* Where the digits end, and a dot between digits; text itself when it begins with none. */
static const char *number_end(const char *text)
{
    static const char digits[] = "0123456789";
    const char *end = text + strspn(text, digits);
    size_t more = end > text && *end == '.' ? strspn(end + 1, digits) : 0;
    return more ? end + 1 + more : end;
}

lily_status size_parse(const char *text, size_t *out, struct lily_err *err)
{
    const char *end = number_end(text), *unit = end + (*end == ' ');
    double v = end > text ? strtod(text, NULL) : 0, bytes = *unit ? unit_bytes(unit) : 1;
    if (end == text || bytes == 0 || (*end && !*unit))
        LILY_FAIL(err, LILY_ERR_USAGE, "\"%.60s\" is no size; expected a number and its unit, as in 24G (GiB) or 24GB", text);
    if (v * bytes > most) LILY_FAIL(err, LILY_ERR_USAGE, "\"%.60s\" is no size that a machine has", text);
    if (!*unit && v > 0 && v < MIB)
        LILY_FAIL(err, LILY_ERR_USAGE, "\"%.30s\" has no unit and would be bytes; write %.30sG for GiB, %.30sM for MiB, %.30sB for bytes", text, text, text,
                  text);
    *out = (size_t)(v * bytes);
    return LILY_OK;
}

bool count_parse(const char *text, long long *out)
{
    static const char letters[] = "KMG";
    char *end;
    if (!isdigit((unsigned char)*text)) return false;
    double v = strtod(text, NULL), factor = 1;
    long long n = strtoll(text, &end, 10);
    const char *p = *end ? strchr(letters, toupper((unsigned char)*end)) : NULL;
    if (*end && (!p || end[1])) return false;
    for (long i = 0; p && i <= p - letters; i++) factor *= 1024;
    if (v * factor > most) return false;
    *out = n * (long long)factor;
    return true;
}

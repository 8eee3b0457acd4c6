/* JSON numbers: their grammar, their value, and the text that Python prints for a double. Independent of the locale. */
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "json/node.h"

static size_t scan_digits(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && s[i] >= '0' && s[i] <= '9') i++;
    return i;
}

size_t node_scan_number(const char *s, size_t n, bool *integer)
{
    size_t i = n > 0 && s[0] == '-', d = scan_digits(s + i, n - i);
    if (d == 0) return 0;
    i += s[i] == '0' ? 1 : d;
    *integer = true;
    if (i < n && s[i] == '.') {
        d = scan_digits(s + i + 1, n - i - 1);
        if (d == 0) return 0;
        i += 1 + d;
        *integer = false;
    }
    if (i < n && (s[i] == 'e' || s[i] == 'E')) {
        size_t sign = i + 1 < n && (s[i + 1] == '+' || s[i + 1] == '-');
        d = scan_digits(s + i + 1 + sign, n - i - 1 - sign);
        if (d == 0) return 0;
        i += 1 + sign + d;
        *integer = false;
    }
    return i;
}

bool json_number_valid(const char *s, size_t n)
{
    bool integer;
    return n > 0 && node_scan_number(s, n, &integer) == n;
}

bool node_fits_int64(const char *s, size_t n, int64_t *out)
{
    bool negative = s[0] == '-';
    uint64_t v = 0, limit = (uint64_t)INT64_MAX + negative;
    for (size_t i = negative; i < n; i++) {
        unsigned digit = (unsigned)(s[i] - '0');
        if (v > (limit - digit) / 10) return false;
        v = v * 10 + digit;
    }
    *out = negative ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}

static double c_strtod(const char *s)
{
    /* glibc returns one static object for "C": nothing is allocated here. */
    return strtod_l(s, NULL, newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

double node_number(const char *s, size_t n)
{
    char small[64];
    if (n < sizeof small) {
        memcpy(small, s, n);
        small[n] = 0;
        return c_strtod(small);
    }
    char *copy = mem_dup(s, n);
    double v = c_strtod(copy);
    free(copy);
    return v;
}

/* The significant digits (at most 17) and the decimal exponent of the first one. */
struct decimal {
    char digits[20];
    int n, exponent;
};

static void round_to(double v, int n_digits, struct decimal *out)
{
    char text[48];
    snprintf(text, sizeof text, "%.*e", n_digits - 1, v);
    out->n = 0;
    const char *p = text;
    for (; *p != 'e'; p++) /* skips the decimal point of whatever locale is set */
        if (*p >= '0' && *p <= '9') out->digits[out->n++] = *p;
    out->digits[out->n] = 0;
    out->exponent = (int)strtol(p + 1, NULL, 10);
}

static bool reads_back(const struct decimal *d, double v)
{
    char text[48];
    snprintf(text, sizeof text, "%se%d", d->digits, d->exponent - (d->n - 1));
    return c_strtod(text) == v;
}

static void step_up(struct decimal *d)
{
    int i = d->n - 1;
    while (i >= 0 && d->digits[i] == '9') d->digits[i--] = '0';
    if (i >= 0) {
        d->digits[i]++;
        return;
    }
    d->digits[0] = '1'; /* 99..9 became 100..0 */
    d->exponent++;
}

/* The shortest digits that read back as v > 0, the nearest to v among those. */
static void shortest(double v, struct decimal *out)
{
    int e;
    bool power_of_two = frexp(v, &e) == 0.5;
    /* Up to 15 digits every decimal survives the way through a normal double, so shorter ones show as trailing zeros. */
    for (int n = v < 2.3e-308 ? 1 : 15; n < 17; n++) {
        round_to(v, n, out);
        if (reads_back(out, v)) return;
        /* Below a power of two doubles are twice as dense: the nearest decimal can fail where the next one up serves. */
        if (power_of_two) {
            step_up(out);
            if (reads_back(out, v)) return;
        }
    }
    round_to(v, 17, out);
}

void node_repr_double(double v, char out[32])
{
    if (!isfinite(v)) {
        snprintf(out, 32, "%s", isnan(v) ? "NaN" : v > 0 ? "Infinity" : "-Infinity");
        return;
    }
    char *p = out;
    if (signbit(v)) *p++ = '-';
    size_t room = 32 - (size_t)(p - out);
    v = fabs(v);
    struct decimal d = {.digits = "0", .n = 1};
    if (v > 0) shortest(v, &d);
    while (d.n > 1 && d.digits[d.n - 1] == '0') d.n--;
    d.digits[d.n] = 0;
    if (d.exponent < -4 || d.exponent >= 16) {
        char sign = d.exponent < 0 ? '-' : '+';
        const char *tail = d.digits + 1;
        snprintf(p, room, "%c%s%se%c%02d", d.digits[0], *tail ? "." : "", tail, sign, abs(d.exponent));
    } else if (d.exponent < 0) {
        snprintf(p, room, "0.%.*s%s", -d.exponent - 1, "0000", d.digits);
    } else if (d.n <= d.exponent + 1) {
        snprintf(p, room, "%s%.*s.0", d.digits, d.exponent + 1 - d.n, "0000000000000000");
    } else {
        snprintf(p, room, "%.*s.%s", d.exponent + 1, d.digits, d.digits + d.exponent + 1);
    }
}

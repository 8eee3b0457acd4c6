/* Parsing options by table. */
#include "opt.h"

#include <getopt.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/size.h"

enum { FIRST_LONG = 256 };

static const struct opt help_only[] = {
    {"help", 'h', NULL, "show this help", OPT_ON, offsetof(struct common_args, help), 0, 0, NULL},
};
static const struct opt json_and_help[] = {
    {"json", 0, NULL, "print one JSON value on stdout", OPT_ON, offsetof(struct common_args, json), 0, 0, NULL},
    {"help", 'h', NULL, "show this help", OPT_ON, offsetof(struct common_args, help), 0, 0, NULL},
};
static const struct opt model_common[] = {
    {"json", 0, NULL, "print one JSON value on stdout", OPT_ON, offsetof(struct common_args, json), 0, 0, NULL},
    {"verbose", 'v', NULL, "report speeds and counts on stderr, also when it is no terminal", OPT_ON,
     offsetof(struct common_args, verbose), 0, 0, NULL},
    {"help", 'h', NULL, "show this help", OPT_ON, offsetof(struct common_args, help), 0, 0, NULL},
};
#define GROUP(title, table) {title, table, (int)(sizeof(table) / sizeof((table)[0]))}
const struct opt_group opts_plain = GROUP("Other", help_only);
const struct opt_group opts_json = GROUP("Output", json_and_help);
const struct opt_group opts_model_common = GROUP("Output", model_common);

/* The options of a command in one row, each with the place of its group's values. */
struct flat {
    const struct opt *opt[MAX_OPTS];
    size_t at[MAX_OPTS];
    int n;
};

static void flatten(const struct command *c, struct flat *f)
{
    f->n = 0;
    for (int g = 0; g < MAX_GROUPS && c->uses[g].group; g++)
        for (int i = 0; i < c->uses[g].group->n && f->n < MAX_OPTS; i++) {
            f->opt[f->n] = &c->uses[g].group->opts[i];
            f->at[f->n++] = c->uses[g].at;
        }
}

static lily_status parse_int(const struct opt *o, const char *text, int *out, struct lily_err *err)
{
    long long v;
    if (!count_parse(text, &v) || (double)v < o->lo || (double)v > o->hi)
        LILY_FAIL(err, LILY_ERR_USAGE, "\"%.60s\" is no whole number from %.0f to %.0f", text, o->lo, o->hi);
    *out = (int)v;
    return LILY_OK;
}

static lily_status parse_real(const struct opt *o, const char *text, double *out, struct lily_err *err)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !(v >= o->lo && v <= o->hi))
        LILY_FAIL(err, LILY_ERR_USAGE, "\"%.60s\" is no number from %g to %g", text, o->lo, o->hi);
    *out = v;
    return LILY_OK;
}

static lily_status parse_size(const struct opt *o, const char *text, size_t *out, struct lily_err *err)
{
    size_t v;
    LILY_TRY(size_parse(text, &v, err));
    if ((double)v < o->lo) LILY_FAIL(err, LILY_ERR_USAGE, "\"%.60s\" is too little; expected a size above 0, as in 24G", text);
    *out = v;
    return LILY_OK;
}

static lily_status store(const struct opt *o, char *values, const char *text, struct lily_err *err)
{
    void *to = values + o->at;
    switch (o->kind) {
    case OPT_ON: *(bool *)to = true; return LILY_OK;
    case OPT_OFF: *(bool *)to = false; return LILY_OK;
    case OPT_INT: return parse_int(o, text, to, err);
    case OPT_REAL: return parse_real(o, text, to, err);
    case OPT_SIZE: return parse_size(o, text, to, err);
    case OPT_TEXT: *(const char **)to = text; return LILY_OK;
    case OPT_TAKE: return o->take(values, text, err);
    }
    LILY_FAIL(err, LILY_ERR_INTERNAL, "an option of no kind");
}

/* Hints at every option that begins with the first len bytes of name. */
static void hint_starts(const struct flat *f, const char *name, size_t len, struct lily_err *err)
{
    struct buf list = {0};
    for (int i = 0; i < f->n; i++)
        if (strncmp(f->opt[i]->name, name, len) == 0) buf_printf(&list, "%s--%s", list.len ? ", " : "", f->opt[i]->name);
    err_hint(err, "it begins %s", buf_str(&list));
    buf_free(&list);
}

/* What getopt could not place: an unknown option, an ambiguous start of one, or a value where none belongs. */
static lily_status explain(const struct command *c, const struct flat *f, const char *word, struct lily_err *err)
{
    if (optopt >= FIRST_LONG) {
        err_set(err, LILY_ERR_USAGE, "%s: --%s takes no value", c->name, f->opt[optopt - FIRST_LONG]->name);
        return LILY_ERR_USAGE;
    }
    if (optopt) {
        err_set(err, LILY_ERR_USAGE, "%s: unknown option -%c", c->name, optopt);
        err_hint(err, "lily help %s lists the options", c->name);
        return LILY_ERR_USAGE;
    }
    const char *names[MAX_OPTS], *name = word + strspn(word, "-");
    size_t len = strcspn(name, "=");
    char shortened[64];
    if (len >= sizeof shortened) len = sizeof shortened - 1;
    memcpy(shortened, name, len);
    shortened[len] = 0;
    bool starts_some = false;
    for (int i = 0; i < f->n; i++) {
        names[i] = f->opt[i]->name;
        starts_some = starts_some || (len && strncmp(names[i], name, len) == 0);
    }
    err_set(err, LILY_ERR_USAGE, "%s: %s option --%s", c->name, starts_some ? "ambiguous" : "unknown", shortened);
    const char *near = nearest_name(shortened, names, f->n);
    if (starts_some) hint_starts(f, name, len, err);
    else if (near) err_hint(err, "did you mean --%s?", near);
    else err_hint(err, "lily help %s lists the options", c->name);
    return LILY_ERR_USAGE;
}

static void fill_getopt(const struct flat *f, struct option *longs, char *shorts)
{
    *shorts++ = ':'; /* tells a missing value from an unknown option */
    for (int i = 0; i < f->n; i++) {
        const struct opt *o = f->opt[i];
        longs[i] = (struct option){o->name, o->arg ? required_argument : no_argument, NULL, FIRST_LONG + i};
        if (!o->letter) continue;
        *shorts++ = o->letter;
        if (o->arg) *shorts++ = ':';
    }
    longs[f->n] = (struct option){0};
    *shorts = 0;
}

static int index_of(const struct flat *f, int code)
{
    if (code >= FIRST_LONG) return code - FIRST_LONG;
    for (int i = 0; i < f->n; i++)
        if (f->opt[i]->letter == code) return i;
    return -1;
}

static bool takes_model(const struct flat *f)
{
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->opt[i]->name, "model") == 0) return true;
    return false;
}

static const char *first_folder(char **words, int n)
{
    for (int i = 0; i < n; i++)
        if (file_is_dir(words[i])) return words[i];
    return NULL;
}

lily_status opts_parse(const struct command *c, int argc, char **argv, void *args, char ***words, int *n,
                       struct lily_err *err)
{
    struct flat f;
    struct option longs[MAX_OPTS + 1];
    char shorts[2 * MAX_OPTS + 2];
    flatten(c, &f);
    fill_getopt(&f, longs, shorts);
    optind = 0; /* a fresh start for getopt */
    opterr = 0;
    for (int code; (code = getopt_long(argc, argv, shorts, longs, NULL)) != -1;) {
        if (code == '?') return explain(c, &f, argv[optind - 1], err);
        int i = index_of(&f, code == ':' ? optopt : code);
        if (code == ':') LILY_FAIL(err, LILY_ERR_USAGE, "%s: --%s needs a value (%s)", c->name, f.opt[i]->name, f.opt[i]->arg);
        if (store(f.opt[i], (char *)args + f.at[i], optarg, err) != LILY_OK) {
            err_prefix(err, "%s: --%s", c->name, f.opt[i]->name);
            return LILY_ERR_USAGE;
        }
    }
    *words = argv + optind;
    *n = argc - optind;
    if (((struct common_args *)args)->help || *n <= c->max_args) return LILY_OK;
    err_set(err, LILY_ERR_USAGE, "%s: one word too many: \"%.60s\"", c->name, argv[optind + c->max_args]);
    bool text = strstr(c->usage, "PROMPT") || strstr(c->usage, "TEXT");
    const char *folder = takes_model(&f) ? first_folder(*words, *n) : NULL;
    if (folder) err_hint(err, "did you mean -m %.200s?", folder);
    else if (c->max_args) err_hint(err, "usage: lily %s [options] %s%s", c->name, c->usage, text ? "; several words go into quotes" : "");
    else err_hint(err, "lily help %s shows the usage", c->name);
    return LILY_ERR_USAGE;
}

/* Number of insertions, deletions, replacements and swaps of neighbours between two short words. */
static int distance(const char *a, const char *b)
{
    enum { LIMIT = 40 };
    int n = (int)strlen(a), m = (int)strlen(b), d[LIMIT + 1][LIMIT + 1];
    if (n > LIMIT || m > LIMIT) return LIMIT;
    for (int i = 0; i <= n; i++) d[i][0] = i;
    for (int j = 0; j <= m; j++) d[0][j] = j;
    for (int i = 1; i <= n; i++)
        for (int j = 1; j <= m; j++) {
            int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    return d[n][m];
}

const char *nearest_name(const char *word, const char *const *names, int n)
{
    const char *best = NULL;
    int best_distance = INT_MAX, len = (int)strlen(word);
    for (int i = 0; i < n; i++) {
        int d = distance(word, names[i]), n_name = (int)strlen(names[i]), shorter = len < n_name ? len : n_name;
        if (shorter >= 3 && strncmp(names[i], word, (size_t)shorter) == 0) d = 1; /* one begins with the other: --temperature */
        if (d < best_distance) {
            best_distance = d;
            best = names[i];
        }
    }
    return best_distance <= (len < 4 ? 1 : len < 8 ? 2 : 3) ? best : NULL;
}

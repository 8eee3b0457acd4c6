/* Parsing options by table. */
#include "opt.h"

#include <getopt.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/size.h"
#include "foreign.h"

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

/* Hints at the count in a text that ends in a unit of bytes: 4K of 4KB, 4KiB. */
static void hint_count(const struct opt *o, const char *text, struct lily_err *err)
{
    char count[32];
    long long v;
    size_t n = strlen(text);
    if (n < 2 || n >= sizeof count || strcasecmp(text + n - 1, "B") != 0) return;
    n -= n > 2 && strcasecmp(text + n - 2, "iB") == 0 ? 2 : 1;
    snprintf(count, sizeof count, "%.*s", (int)n, text);
    if (count_parse(count, &v)) err_hint(err, "--%s is a count, not bytes: write %s", o->name, count);
}

static lily_status parse_int(const struct opt *o, const char *text, int *out, struct lily_err *err)
{
    long long v;
    if (!count_parse(text, &v) || (double)v < o->lo || (double)v > o->hi) {
        err_set(err, LILY_ERR_USAGE, "\"%.60s\" is no whole number from %.0f to %.0f", text, o->lo, o->hi);
        hint_count(o, text, err);
        return LILY_ERR_USAGE;
    }
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

static lily_status unknown(const struct command *c, const char *dashes, const char *name, struct lily_err *err)
{
    err_set(err, LILY_ERR_USAGE, "%s: unknown option %s%s", c->name, dashes, name);
    opts_hint(c, name, err);
    return LILY_ERR_USAGE;
}

/* A letter that is not known, in the word that getopt is in or has just left: of more letters, it may be a name as -ngl is elsewhere. */
static lily_status unknown_letter(const struct command *c, char **argv, struct lily_err *err)
{
    char letter[2] = {(char)optopt, 0};
    const char *last = argv[optind - 1], *next = argv[optind];
    const char *word = strlen(last) > 1 && last[strlen(last) - 1] == optopt ? last : next;
    bool name = word && word[0] == '-' && word[1] && word[2] && foreign_option(word + 1);
    return unknown(c, "-", name ? word + 1 : letter, err);
}

/* The name in a long option's word, which may go on with =VALUE. */
static void name_of(const char *word, char out[static 64])
{
    word += strspn(word, "-");
    snprintf(out, 64, "%.*s", (int)strcspn(word, "="), word);
}

/* What getopt could not place: an unknown option, an ambiguous start of one, or a value where none belongs. */
static lily_status explain(const struct command *c, const struct flat *f, char **argv, struct lily_err *err)
{
    char name[64];
    if (optopt >= FIRST_LONG) LILY_FAIL(err, LILY_ERR_USAGE, "%s: --%s takes no value", c->name, f->opt[optopt - FIRST_LONG]->name);
    if (optopt) return unknown_letter(c, argv, err);
    name_of(argv[optind - 1], name);
    bool starts_some = false;
    for (int i = 0; i < f->n; i++) starts_some = starts_some || (*name && strncmp(f->opt[i]->name, name, strlen(name)) == 0);
    if (!starts_some) return unknown(c, "--", name, err);
    err_set(err, LILY_ERR_USAGE, "%s: ambiguous option --%s", c->name, name);
    hint_starts(f, name, strlen(name), err);
    return LILY_ERR_USAGE;
}

/*
 * Refuses another program's option that getopt takes for one of ours: --prompt for the start of --prompt-cache, -sys for -s with
 * the value "ys".
 */
static lily_status check_foreign(const struct command *c, const struct opt *o, int code, char **argv, struct lily_err *err)
{
    char name[64];
    const char *word = argv[optind - 1];
    if (code < FIRST_LONG) return optarg && optarg == word + 2 && foreign_option(word + 1) ? unknown(c, "-", word + 1, err) : LILY_OK;
    name_of(optarg == word ? argv[optind - 2] : word, name);
    const struct foreign *foreign = strlen(name) > 2 && strcmp(name, o->name) != 0 ? foreign_option(name) : NULL;
    if (!foreign || (foreign->own && strcmp(foreign->own, o->name) == 0)) return LILY_OK;
    return unknown(c, "--", name, err);
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
        if (code == '?') return explain(c, &f, argv, err);
        int i = index_of(&f, code == ':' ? optopt : code);
        LILY_TRY(check_foreign(c, f.opt[i], code == ':' ? optopt : code, argv, err));
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

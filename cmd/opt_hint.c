/* What was probably meant by an option or a name that is not there. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "foreign.h"
#include "sampling_args.h"

enum { MAX_NAMED = 4, MAX_NAME = 40 };

/* Number of insertions, deletions, replacements and swaps of neighbours between two short words. */
static int distance(const char *a, const char *b)
{
    int n = (int)strlen(a), m = (int)strlen(b), d[MAX_NAME + 1][MAX_NAME + 1];
    if (n > MAX_NAME || m > MAX_NAME) return MAX_NAME;
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
    return best_distance <= (len < 5 ? 1 : len < 8 ? 2 : 3) ? best : NULL; /* less than half of the word */
}

bool command_takes(const struct command *c, const char *name)
{
    for (int g = 0; g < MAX_GROUPS && c->uses[g].group; g++)
        for (int i = 0; i < c->uses[g].group->n; i++)
            if (strcmp(c->uses[g].group->opts[i].name, name) == 0) return true;
    return false;
}

/* How an answer is made: a client says that with each request. */
static bool of_requests(const char *name)
{
    static const char *const more[] = {"system", "think", "no-think"};
    for (int i = 0; i < opts_sampling.n; i++)
        if (strcmp(opts_sampling.opts[i].name, name) == 0) return true;
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
        if (strcmp(more[i], name) == 0) return true;
    return false;
}

/* Hints at the commands that have the option; false where none has. */
static bool hint_elsewhere(const struct command *c, const char *name, struct lily_err *err)
{
    struct buf list = {0};
    int n = 0;
    for (int i = 0; commands[i]; i++)
        if (command_takes(commands[i], name) && ++n <= MAX_NAMED) buf_printf(&list, "%slily %s", n > 1 ? ", " : "", commands[i]->name);
    if (n && c == &cmd_serve && of_requests(name)) err_hint(err, "requests say that, each for its own answer (docs/api.md)");
    else if (n) err_hint(err, "--%s is an option of %s%s", name, buf_str(&list), n > MAX_NAMED ? " and more" : "");
    buf_free(&list);
    return n > 0;
}

static const char *nearest_option(const struct command *c, const char *name)
{
    const char *names[MAX_OPTS];
    int n = 0;
    for (int g = 0; g < MAX_GROUPS && c->uses[g].group; g++)
        for (int i = 0; i < c->uses[g].group->n && n < MAX_OPTS; i++) names[n++] = c->uses[g].group->opts[i].name;
    return nearest_name(name, names, n);
}

void opts_hint(const struct command *c, const char *name, struct lily_err *err)
{
    const struct foreign *foreign = foreign_option(name);
    const char *own = foreign ? foreign->own : NULL;
    if (own && command_takes(c, own)) {
        err_hint(err, "did you mean --%s?", own);
    } else if (foreign && foreign->advice) {
        err_hint(err, "%s", foreign->advice);
    } else if (!hint_elsewhere(c, own ? own : name, err)) {
        const char *near = strlen(name) > 1 ? nearest_option(c, name) : NULL;
        if (near) err_hint(err, "did you mean --%s?", near);
        else err_hint(err, "lily help %s lists the options", c->name);
    }
}

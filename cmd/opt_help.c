/* The help text of a command, and the same for machines. */
#include <stdio.h>
#include <string.h>

#include "opt.h"

enum { HELP_COLUMN = 30, HELP_WIDTH = 80 };

/* Appends text from column HELP_COLUMN on, wrapped; the cursor is at column `at`. */
static void wrapped(struct buf *out, const char *text, int at)
{
    if (at >= HELP_COLUMN - 1) {
        buf_addc(out, '\n');
        at = 0;
    }
    while (*text) {
        for (; at < HELP_COLUMN; at++) buf_addc(out, ' ');
        size_t room = HELP_WIDTH - HELP_COLUMN, n = strlen(text);
        if (n > room) {
            n = room;
            while (n > 0 && text[n] != ' ') n--;
            if (n == 0) n = room;
        }
        buf_add(out, text, n);
        buf_addc(out, '\n');
        text += n;
        while (*text == ' ') text++;
        at = 0;
    }
}

static void help_option(const struct opt *o, struct buf *out)
{
    char head[80], letter[8] = "    ";
    if (o->letter) snprintf(letter, sizeof letter, "-%c, ", o->letter);
    int n = snprintf(head, sizeof head, "  %s--%s%s%s", letter, o->name, o->arg ? " " : "", o->arg ? o->arg : "");
    buf_addz(out, head);
    wrapped(out, o->help, n);
}

void opts_help(const struct command *c, struct buf *out)
{
    buf_printf(out, "Usage: lily %s%s%s%s\n\n%s\n", c->name, c->uses[0].group ? " [options]" : "", *c->usage ? " " : "",
               c->usage, c->about);
    for (int g = 0; g < MAX_GROUPS && c->uses[g].group; g++) {
        buf_printf(out, "\n%s:\n", c->uses[g].group->title);
        for (int i = 0; i < c->uses[g].group->n; i++) help_option(&c->uses[g].group->opts[i], out);
    }
}

static struct json *json_of_option(const struct opt *o, const char *group)
{
    char letter[2] = {o->letter, 0};
    struct json *v = json_new_object();
    json_put(v, "long", json_new_string(o->name));
    json_put(v, "short", o->letter ? json_new_string(letter) : json_new_null());
    json_put(v, "arg", o->arg ? json_new_string(o->arg) : json_new_null());
    json_put(v, "help", json_new_string(o->help));
    json_put(v, "group", json_new_string(group));
    return v;
}

struct json *opts_json_of(const struct command *c)
{
    struct json *v = json_new_object(), *options = json_new_array();
    json_put(v, "name", json_new_string(c->name));
    json_put(v, "usage", json_new_string(c->usage));
    json_put(v, "summary", json_new_string(c->summary));
    json_put(v, "about", json_new_string(c->about));
    for (int g = 0; g < MAX_GROUPS && c->uses[g].group; g++)
        for (int i = 0; i < c->uses[g].group->n; i++)
            json_add(options, json_of_option(&c->uses[g].group->opts[i], c->uses[g].group->title));
    json_put(v, "options", options);
    return v;
}

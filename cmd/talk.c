/* Conversations and their branches. */
#include "talk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "body.h"
#include "chat/message.h"

enum { MAX_BRANCHES = 1000 };

static void branch_cut(struct branch *b, int n)
{
    while (b->n > n) json_free(b->messages[--b->n]);
}

static void branch_add(struct branch *b, struct json *moved)
{
    if (b->n == b->cap) {
        b->cap = b->cap ? 2 * b->cap : 16;
        b->messages = mem_resize(b->messages, (size_t)b->cap * sizeof *b->messages);
    }
    b->messages[b->n++] = moved;
}

static struct branch *new_branch(struct talk *t, const char *name)
{
    t->branches = mem_resize(t->branches, (size_t)(t->n + 1) * sizeof *t->branches);
    struct branch *b = &t->branches[t->n++];
    memset(b, 0, sizeof *b);
    b->name = mem_dupz(name);
    return b;
}

void talk_init(struct talk *t)
{
    memset(t, 0, sizeof *t);
    new_branch(t, "main");
}

void talk_free(struct talk *t)
{
    for (int i = 0; i < t->n; i++) {
        branch_cut(&t->branches[i], 0);
        free(t->branches[i].messages);
        free(t->branches[i].name);
    }
    free(t->branches);
    memset(t, 0, sizeof *t);
}

struct branch *talk_branch(struct talk *t)
{
    return &t->branches[t->current];
}

static const char *role_of(const struct json *message)
{
    const struct json *role = json_get(message, "role");
    return role && json_kind(role) == JSON_STRING ? json_string(role) : "";
}

static bool has_system(const struct branch *b)
{
    return b->n > 0 && strcmp(role_of(b->messages[0]), "system") == 0;
}

void talk_add(struct talk *t, struct json *moved)
{
    branch_add(talk_branch(t), moved);
}

void talk_add_text(struct talk *t, const char *role, const char *text, size_t n)
{
    talk_add(t, chat_message(role, text, n));
}

void talk_set_system(struct talk *t, const char *text)
{
    struct branch *b = talk_branch(t);
    if (has_system(b)) {
        json_free(b->messages[0]);
        memmove(b->messages, b->messages + 1, (size_t)--b->n * sizeof *b->messages);
    }
    if (!*text) return;
    branch_add(b, NULL);
    memmove(b->messages + 1, b->messages, (size_t)(b->n - 1) * sizeof *b->messages);
    b->messages[0] = chat_message("system", text, strlen(text));
}

/* The place of the last user message, or -1. */
static int last_user(const struct branch *b)
{
    for (int i = b->n; i-- > 0;)
        if (strcmp(role_of(b->messages[i]), "user") == 0) return i;
    return -1;
}

bool talk_drop_answer(struct talk *t)
{
    struct branch *b = talk_branch(t);
    int at = last_user(b);
    if (at >= 0) branch_cut(b, at + 1);
    return at >= 0;
}

bool talk_drop_exchange(struct talk *t)
{
    struct branch *b = talk_branch(t);
    int at = last_user(b);
    if (at >= 0) branch_cut(b, at);
    return at >= 0;
}

struct json *talk_take_last(struct talk *t)
{
    struct branch *b = talk_branch(t);
    return b->messages[--b->n];
}

int talk_user_turns(struct talk *t)
{
    const struct branch *b = talk_branch(t);
    int n = 0;
    for (int i = 0; i < b->n; i++) n += strcmp(role_of(b->messages[i]), "user") == 0;
    return n;
}

struct json *talk_messages(struct talk *t)
{
    const struct branch *b = talk_branch(t);
    struct json *list = json_new_array();
    for (int i = 0; i < b->n; i++) json_add(list, json_new_view(b->messages[i]));
    return list;
}

/* Goes to a new branch with the first n messages of the current one. */
static lily_status begin_copy(struct talk *t, const char *name, int n, struct lily_err *err)
{
    if (t->n == MAX_BRANCHES) LILY_FAIL(err, LILY_ERR_LIMIT, "there are %d branches already", t->n);
    struct branch *to = new_branch(t, name);
    const struct branch *from = talk_branch(t);
    for (int i = 0; i < n; i++) branch_add(to, json_copy(from->messages[i]));
    t->current = t->n - 1;
    return LILY_OK;
}

/* The first branch of that name; -1: none. */
static int branch_named(const struct talk *t, const char *name)
{
    for (int i = 0; i < t->n; i++)
        if (strcmp(t->branches[i].name, name) == 0) return i;
    return -1;
}

lily_status talk_go(struct talk *t, const char *name, bool *made, struct lily_err *err)
{
    char *end;
    long number = strtol(name, &end, 10);
    *made = false;
    if (!*end && end != name) {
        if (number < 1 || number > t->n) LILY_FAIL(err, LILY_ERR_USAGE, "there is no branch %ld, only 1 to %d", number, t->n);
        t->current = (int)number - 1;
        return LILY_OK;
    }
    const int named = branch_named(t, name);
    if (named >= 0) {
        t->current = named;
        return LILY_OK;
    }
    LILY_TRY(begin_copy(t, name, talk_branch(t)->n, err));
    *made = true;
    return LILY_OK;
}

lily_status talk_new(struct talk *t, struct lily_err *err)
{
    char name[32];
    int number = t->n;
    do snprintf(name, sizeof name, "new %d", ++number);
    while (branch_named(t, name) >= 0);
    return begin_copy(t, name, has_system(talk_branch(t)), err);
}

enum { MOST_REPLACED = 64 << 20 }; /* bytes: no conversation is longer */

/* A file that is there is replaced only where it is one of these, or empty; what is no plain file is written through. */
static lily_status check_replaced(const char *path, struct lily_err *err)
{
    struct stat s;
    struct json *v = NULL;
    struct lily_err ignored;
    if (stat(path, &s) != 0 || !S_ISREG(s.st_mode) || s.st_size == 0) return LILY_OK;
    const bool ours = json_parse_file(path, MOST_REPLACED, &v, &ignored) == LILY_OK && json_get(v, "messages");
    json_free(v);
    if (ours) return LILY_OK;
    err_set(err, LILY_ERR_USAGE, "%s is there, and no conversation", path);
    err_hint(err, "give another name");
    return LILY_ERR_USAGE;
}

lily_status talk_save(struct talk *t, const char *path, struct lily_err *err)
{
    const struct branch *b = talk_branch(t);
    LILY_TRY(check_replaced(path, err));
    struct json *top = json_new_object(), *list = json_new_array();
    struct buf text = {0};
    for (int i = 0; i < b->n; i++) json_add(list, json_copy(b->messages[i]));
    json_put(top, "messages", list);
    json_write(top, 2, &text);
    buf_addc(&text, '\n');
    lily_status st = file_write_named(path, buf_str(&text), text.len, false, err);
    buf_free(&text);
    json_free(top);
    return st;
}

lily_status talk_load(struct talk *t, const char *path, struct lily_err *err)
{
    struct body body;
    if (strcmp(path, "-") == 0) LILY_FAIL(err, LILY_ERR_USAGE, "a conversation cannot come from stdin, where the messages come from");
    LILY_TRY(body_read(path, &body, err));
    lily_status st = body_text_only(&body, err);
    if (st == LILY_OK) {
        branch_cut(talk_branch(t), 0);
        for (size_t i = 0; i < json_size(body.request.messages); i++) talk_add(t, json_copy(json_at(body.request.messages, i)));
    }
    body_free(&body);
    return st;
}

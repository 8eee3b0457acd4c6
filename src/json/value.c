/* JSON values in memory: access, building, copying, releasing. */
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "json/node.h"

enum json_kind json_kind(const struct json *v)
{
    return (enum json_kind)v->kind;
}

const char *json_kind_name(const struct json *v)
{
    static const char *const names[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
    return names[v->kind];
}

bool json_bool(const struct json *v)
{
    assert(v->kind == JSON_BOOL);
    return v->u.b;
}

int64_t json_int(const struct json *v)
{
    assert(v->kind == JSON_INTEGER);
    return v->u.i;
}

double json_double(const struct json *v)
{
    assert(v->kind == JSON_INTEGER || v->kind == JSON_REAL);
    if (v->kind == JSON_INTEGER) return (double)v->u.i;
    return v->flags & NODE_BIG ? node_number(v->u.s, v->n) : v->u.d;
}

const char *json_string(const struct json *v)
{
    assert(v->kind == JSON_STRING);
    return v->u.s;
}

size_t json_string_len(const struct json *v)
{
    assert(v->kind == JSON_STRING);
    return v->n;
}

size_t json_size(const struct json *v)
{
    assert(v->kind == JSON_ARRAY || v->kind == JSON_OBJECT);
    return v->n;
}

bool json_has_repeated_key(const struct json *object)
{
    assert(object->kind == JSON_OBJECT);
    return object->flags & NODE_REPEATED;
}

const struct json *json_at(const struct json *array, size_t i)
{
    if (!array || array->kind != JSON_ARRAY || i >= array->n) return NULL;
    return array->u.items[i];
}

const struct json *json_get(const struct json *object, const char *key)
{
    if (!object || object->kind != JSON_OBJECT || object->n == 0) return NULL;
    size_t len = strlen(key);
    struct json_member *m = node_find(object, key, len, node_hash(key, len));
    return m ? m->value : NULL;
}

const char *json_key_at(const struct json *object, size_t i, const struct json **value)
{
    assert(object->kind == JSON_OBJECT && i < object->n);
    const struct json_member *m = &object->u.table->m[i];
    if (value) *value = m->value;
    return m->key;
}

/* ---- tables of objects ---- */

static uint64_t hash_key[2];

static void make_hash_key(void)
{
    if (getrandom(hash_key, sizeof hash_key, GRND_NONBLOCK) != (ssize_t)sizeof hash_key) {
        hash_key[0] = (uint64_t)(clock_ms() * 1e6);
        hash_key[1] = (uint64_t)(uintptr_t)&hash_key;
    }
}

static inline uint64_t rotate(uint64_t x, int b)
{
    return x << b | x >> (64 - b);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1], v[1] = rotate(v[1], 13) ^ v[0], v[0] = rotate(v[0], 32);
    v[2] += v[3], v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3], v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1], v[1] = rotate(v[1], 17) ^ v[2], v[2] = rotate(v[2], 32);
}

/* SipHash-1-3: requests choose the keys, so a hash without a secret would let them make every lookup linear. */
uint32_t node_hash(const char *key, size_t len)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_hash_key);
    uint64_t v[4] = {hash_key[0] ^ 0x736f6d6570736575u, hash_key[1] ^ 0x646f72616e646f6du,
                     hash_key[0] ^ 0x6c7967656e657261u, hash_key[1] ^ 0x7465646279746573u};
    size_t left = len;
    for (;;) {
        uint64_t m = 0;
        memcpy(&m, key, left < 8 ? left : 8);
        if (left < 8) m |= (uint64_t)len << 56;
        v[3] ^= m;
        sip_round(v);
        v[0] ^= m;
        if (left < 8) break;
        key += 8;
        left -= 8;
    }
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++) sip_round(v);
    return (uint32_t)(v[0] ^ v[1] ^ v[2] ^ v[3]) & 0x7fffffffu;
}

uint32_t node_index_slots(uint32_t cap)
{
    uint32_t slots = 16;
    while (slots / 2 < cap) slots *= 2;
    return slots;
}

struct json_member *node_find(const struct json *object, const char *key, size_t len, uint32_t hash)
{
    struct json_table *t = object->u.table;
    if (!t) return NULL;
    if (!t->index) {
        for (uint32_t i = 0; i < object->n; i++)
            if (t->m[i].hash == hash && t->m[i].len == len && memcmp(t->m[i].key, key, len) == 0) return &t->m[i];
        return NULL;
    }
    for (uint32_t slot = hash & t->mask; t->index[slot]; slot = (slot + 1) & t->mask) {
        struct json_member *m = &t->m[t->index[slot] - 1];
        if (m->hash == hash && m->len == len && memcmp(m->key, key, len) == 0) return m;
    }
    return NULL;
}

void node_append(struct json *object, struct json_member member)
{
    struct json_table *t = object->u.table;
    assert(object->n < t->cap);
    t->m[object->n++] = member;
    if (!t->index) return;
    uint32_t slot = member.hash & t->mask;
    while (t->index[slot]) slot = (slot + 1) & t->mask;
    t->index[slot] = object->n;
}

/* ---- building ---- */

static struct json *new_node(enum json_kind kind)
{
    struct json *v = mem_new(sizeof *v);
    v->kind = (uint8_t)kind;
    return v;
}

/* A node and its text in one block of text_node_size(n) zeroed bytes. */
static struct json *fill_text_node(struct json *v, enum json_kind kind, const char *s, size_t n)
{
    char *text = (char *)(v + 1);
    if (n) memcpy(text, s, n);
    v->kind = (uint8_t)kind;
    v->n = (uint32_t)n;
    v->u.s = text;
    return v;
}

static size_t text_node_size(size_t n)
{
    assert(n <= UINT32_MAX);
    return sizeof(struct json) + n + 1;
}

static struct json *new_text_node(enum json_kind kind, const char *s, size_t n)
{
    return fill_text_node(mem_new(text_node_size(n)), kind, s, n);
}

struct json *json_new_null(void)
{
    return new_node(JSON_NULL);
}

struct json *json_new_bool(bool b)
{
    struct json *v = new_node(JSON_BOOL);
    v->u.b = b;
    return v;
}

struct json *json_new_int(int64_t i)
{
    struct json *v = new_node(JSON_INTEGER);
    v->u.i = i;
    return v;
}

struct json *json_new_double(double d)
{
    struct json *v = new_node(JSON_REAL);
    v->u.d = d;
    return v;
}

struct json *json_new_text(const char *s, size_t n)
{
    struct buf repaired = {0};
    utf8_add_repaired(&repaired, s, n);
    struct json *v = new_text_node(JSON_STRING, buf_str(&repaired), repaired.len);
    buf_free(&repaired);
    return v;
}

struct json *json_new_string(const char *s)
{
    return json_new_text(s, strlen(s));
}

struct json *json_new_number_text(const char *s, size_t n)
{
    assert(json_number_valid(s, n));
    struct json *v = new_text_node(JSON_REAL, s, n);
    v->flags = NODE_BIG;
    return v;
}

struct json *json_new_array(void)
{
    return new_node(JSON_ARRAY);
}

struct json *json_new_object(void)
{
    return new_node(JSON_OBJECT);
}

struct json *json_new_view(const struct json *v)
{
    struct json *view = mem_new(sizeof *view);
    *view = *v;
    view->flags = (uint8_t)((v->flags & NODE_BIG) | NODE_VIEW);
    return view;
}

void json_add(struct json *array, struct json *moved)
{
    assert(array->kind == JSON_ARRAY && !(array->flags & NODE_VIEW));
    uint32_t n = array->n;
    bool open = array->flags & NODE_OPEN;
    if (!open || (n >= 4 && (n & (n - 1)) == 0)) { /* an open table holds 4 or the next power of two */
        size_t cap = 4;
        while (cap <= n) cap *= 2;
        struct json **items = mem_resize(open ? array->u.items : NULL, cap * sizeof *items);
        if (!open && n) memcpy(items, array->u.items, n * sizeof *items);
        array->u.items = items;
        array->flags |= NODE_OPEN;
    }
    array->u.items[array->n++] = moved;
}

static void grow_object(struct json *object)
{
    struct json_table *old = object->u.table;
    uint32_t n = object->n, cap = 4;
    while (cap <= n) cap *= 2;
    uint32_t slots = cap > NODE_PLAIN_MEMBERS ? node_index_slots(cap) : 0;
    struct json_table *t = mem_new(sizeof *t + cap * sizeof t->m[0] + slots * sizeof(uint32_t));
    t->cap = cap;
    t->mask = slots - 1;
    t->index = slots ? (uint32_t *)&t->m[cap] : NULL;
    object->u.table = t;
    object->n = 0;
    for (uint32_t i = 0; i < n; i++) node_append(object, old->m[i]);
    if (object->flags & NODE_OPEN) free(old);
    object->flags |= NODE_OPEN;
}

void json_put(struct json *object, const char *key, struct json *moved)
{
    assert(object->kind == JSON_OBJECT && !(object->flags & NODE_VIEW));
    size_t len = strlen(key);
    uint32_t hash = node_hash(key, len);
    struct json_member *m = node_find(object, key, len, hash);
    if (m) {
        json_free(m->value);
        m->value = moved;
        if (!(object->flags & NODE_OPEN)) grow_object(object); /* from now on its members are walked when it is freed */
        return;
    }
    if (!(object->flags & NODE_OPEN) || object->n == object->u.table->cap) grow_object(object);
    node_append(object, (struct json_member){mem_dup(key, len), moved, (uint32_t)len, hash, true});
}

lily_status json_put_text(struct json *object, const char *key, const struct buf *text, struct lily_err *err)
{
    struct buf repaired = {.tries = true};
    struct json *v = NULL;
    lily_status st = buf_check(text, key, err);
    utf8_add_repaired(&repaired, buf_str(text), text->len);
    if (st == LILY_OK && !repaired.failed) v = mem_try(1, text_node_size(repaired.len));
    if (st == LILY_OK && !v) st = err_set(err, LILY_ERR_MEMORY, "not enough memory for %s of %zu bytes", key, text->len);
    if (v) json_put(object, key, fill_text_node(v, JSON_STRING, buf_str(&repaired), repaired.len));
    buf_free(&repaired);
    return st;
}

struct json *json_copy(const struct json *v)
{
    struct json *out;
    switch (json_kind(v)) {
    case JSON_STRING:
        return new_text_node(JSON_STRING, v->u.s, v->n);
    case JSON_ARRAY:
        out = json_new_array();
        for (uint32_t i = 0; i < v->n; i++) json_add(out, json_copy(v->u.items[i]));
        return out;
    case JSON_OBJECT:
        out = json_new_object();
        for (uint32_t i = 0; i < v->n; i++) json_put(out, v->u.table->m[i].key, json_copy(v->u.table->m[i].value));
        return out;
    default:
        if (v->flags & NODE_BIG) return json_new_number_text(v->u.s, v->n);
        out = new_node(json_kind(v));
        out->u = v->u;
        return out;
    }
}

void json_free(struct json *v)
{
    if (!v) return;
    if (v->flags & NODE_OPEN) {
        for (uint32_t i = 0; i < v->n; i++) {
            if (v->kind == JSON_ARRAY) {
                json_free(v->u.items[i]);
                continue;
            }
            struct json_member *m = &v->u.table->m[i];
            json_free(m->value);
            if (m->owns_key) free((char *)m->key);
        }
        if (v->kind == JSON_ARRAY) free(v->u.items);
        else free(v->u.table);
    }
    if (!(v->flags & NODE_IN_BLOCK)) free(v);
}

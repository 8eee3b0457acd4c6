/*
 * How a JSON value is laid out; only for the files of this folder.
 *
 * A parsed tree is one allocation, its root first, so that its size is known before it is made and json_free is one free().
 * Built values are single allocations whose containers own tables of their own ("open"). Containers hold pointers in both
 * forms, so a value never moves: a root that was parsed becomes open at its first change, its members stay in the block.
 */
#ifndef LILY_JSON_NODE_H
#define LILY_JSON_NODE_H

#include "json/json.h"

enum {
    NODE_IN_BLOCK = 1, /* part of a parsed tree: its root frees it */
    NODE_OPEN = 2,     /* the table is an allocation of its own */
    NODE_BIG = 4,      /* a JSON_REAL that keeps its text: beyond int64_t or double, or json_new_number_text */
    NODE_VIEW = 8,     /* shares the text and members of another value, and cannot be changed */
    NODE_REPEATED = 16 /* a parsed object whose text gave a key more than once */
};

struct json_member {
    const char *key; /* owned when owns_key, else a view into the block */
    struct json *value;
    uint32_t len;
    uint32_t hash : 31;
    uint32_t owns_key : 1;
};

struct json_table {
    uint32_t cap;
    uint32_t mask;   /* slots of the index less one; no index while cap <= NODE_PLAIN_MEMBERS */
    uint32_t *index; /* member number + 1 by hash, 0 for a free slot */
    struct json_member m[];
};

enum { NODE_PLAIN_MEMBERS = 8 };

struct json {
    uint8_t kind;
    uint8_t flags;
    uint32_t n; /* bytes of a string or number text; members of a container */
    union {
        bool b;
        int64_t i;
        double d;
        const char *s;
        struct json **items;
        struct json_table *table; /* NULL while an object has no members */
    } u;
};

/* Slots that an index for cap members has: a power of two, at most half full. */
uint32_t node_index_slots(uint32_t cap);
/* A hash that callers from outside cannot steer: keyed at random once per process. */
uint32_t node_hash(const char *key, size_t len);
/* The member with that key, or NULL. */
struct json_member *node_find(const struct json *object, const char *key, size_t len, uint32_t hash);
/* Appends a member that is not there yet; the table has room. */
void node_append(struct json *object, struct json_member member);

/* Number text that is already known to be well formed (not NUL-terminated). */
double node_number(const char *s, size_t n);
/* Length of the JSON number at s, 0 when there is none; *integer tells whether it has neither fraction nor exponent. */
size_t node_scan_number(const char *s, size_t n, bool *integer);
bool node_fits_int64(const char *s, size_t n, int64_t *out);
/* Python's repr of a double ("inf" and "nan" as Python's json: Infinity, NaN); a NUL-terminated text in out. */
void node_repr_double(double v, char out[32]);
/* A number of either kind, appended. python: what json.loads makes of one that no double can hold is an infinity. */
void node_write_number(const struct json *v, bool python, struct buf *out);

#endif

/*
 * JSON: strict reading, typed access with errors that name the field, building and writing, and the text forms of Python's
 * json.dumps and str() that chat templates need.
 *
 * Reading is our own and not a library's, because numbers must come out as Python prints them (integers of any size, the
 * shortest repr of a double) and because hostile text may not cost more than a fixed multiple of its length.
 *
 * Threads: a value tree belongs to one thread at a time. Lifetime: json_free releases a tree that json_parse or a json_new_*
 * function returned; values, strings and keys reached from it are views that die with it. A value added to a container is moved.
 */
#ifndef LILY_JSON_JSON_H
#define LILY_JSON_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct json; /* one value of any kind */

enum json_kind { JSON_NULL, JSON_BOOL, JSON_INTEGER, JSON_REAL, JSON_STRING, JSON_ARRAY, JSON_OBJECT };
enum { JSON_MAX_DEPTH = 512 };

/*
 * Parses one JSON text of n bytes (at most 2 GiB). `what` names it in errors ("request body", a path), which say line and
 * column. Memory at most 16x the text. Refused: invalid UTF-8, lone surrogates, raw control characters in strings, U+0000
 * in keys (in strings \u0000 is kept), nesting over JSON_MAX_DEPTH, anything after the value. Members keep the order of the text; of equal keys the last value wins, at the
 * place of the first.
 */
lily_status json_parse(const char *text, size_t n, const char *what, struct json **out, struct lily_err *err);
/* The same for what was read from a file: a text that ends too early comes with a hint. */
lily_status json_parse_read(const char *text, size_t n, const char *path, struct json **out, struct lily_err *err);
/* Reads and parses a file of at most max_bytes. */
lily_status json_parse_file(const char *path, size_t max_bytes, struct json **out, struct lily_err *err);
void json_free(struct json *v); /* NULL is fine */

enum json_kind json_kind(const struct json *v);
const char *json_kind_name(const struct json *v); /* "null", "boolean", "integer", "number", "string", "array", "object" */

/* Access; the value must have the kind (checked by assert), except json_get and json_at, which return NULL when absent. */
bool json_bool(const struct json *v);
int64_t json_int(const struct json *v);      /* JSON_INTEGER is only given to integers that fit; larger ones are JSON_REAL */
double json_double(const struct json *v);    /* integer or real; infinite where the text is beyond a double */
const char *json_string(const struct json *v); /* NUL-terminated view; may hold NUL bytes inside: see json_string_len */
size_t json_string_len(const struct json *v);
size_t json_size(const struct json *v);      /* members of an array or object */
const struct json *json_at(const struct json *array, size_t i);
const struct json *json_get(const struct json *object, const char *key); /* NULL: absent, or not an object */
bool json_has_repeated_key(const struct json *object); /* its own text gave a key twice; the last value was kept */
/* Members of an object in the order of the text. */
const char *json_key_at(const struct json *object, size_t i, const struct json **value);

/*
 * Typed members. absent (or null) leaves *out as it is; another kind, or out of [lo, hi], is LILY_ERR_FORMAT that names
 * `what`, the key, what was found and what was expected. Strings are views.
 */
struct json_field {
    const struct json *object;
    const char *what; /* borrowed: file or place, for the message */
    const char *key;
};
lily_status json_get_int(struct json_field f, int64_t lo, int64_t hi, int64_t *out, struct lily_err *err);
lily_status json_get_double(struct json_field f, double lo, double hi, double *out, struct lily_err *err);
lily_status json_get_bool(struct json_field f, bool *out, struct lily_err *err);
lily_status json_get_string(struct json_field f, const char **out, struct lily_err *err);

/*
 * Building; every function returns an owned value, and what is added is moved (pointers to it stay good as views).
 * Invalid UTF-8 becomes U+FFFD.
 */
struct json *json_new_null(void);
struct json *json_new_bool(bool v);
struct json *json_new_int(int64_t v);
struct json *json_new_double(double v);
struct json *json_new_text(const char *s, size_t n);
struct json *json_new_string(const char *s);
struct json *json_new_number_text(const char *s, size_t n); /* printed exactly as given; json_number_valid holds */
struct json *json_new_array(void);
struct json *json_new_object(void);
void json_add(struct json *array, struct json *moved);
void json_put(struct json *object, const char *key, struct json *moved); /* replaces */
/* Puts a text whose size comes from outside: LILY_ERR_MEMORY when there is no room for it, or when it has failed already. */
lily_status json_put_text(struct json *object, const char *key, const struct buf *text, struct lily_err *err);
struct json *json_copy(const struct json *v);
/* Shares the text and members of v, which must outlive it unchanged; cannot be added to. For large parts of a request. */
struct json *json_new_view(const struct json *v);

/* True when s is exactly one JSON number that json_parse would accept. */
bool json_number_valid(const char *s, size_t n);

/* Writes compact JSON ({"a":1}) or, with indent > 0, indented. Doubles in their shortest exact form, non-finite as null. */
void json_write(const struct json *v, int indent, struct buf *out);
/* The inside of a JSON string: n bytes of valid UTF-8 with escapes, without the quotes. */
void json_write_escaped(const char *s, size_t n, struct buf *out);
/* As Python's json.dumps(v, ensure_ascii=False): ", " and ": ", Python's float repr, integers of any size as read. */
void json_write_python(const struct json *v, struct buf *out);
/* As Python's str() of the value: True, False, None, 'text' inside containers with repr quoting (the 3.5 template). */
void json_write_python_str(const struct json *v, struct buf *out);

#endif

/*
 * Typing the values of tool calls by the tools' JSON schemas. Any thread; only for the files of this folder.
 */
#ifndef LILY_CHAT_ARGUMENTS_H
#define LILY_CHAT_ARGUMENTS_H

#include "json/json.h"

/* What a schema lets a value be, in its order. */
struct argument_types {
    enum json_kind kinds[8]; /* JSON_REAL stands for "number" */
    int n;                   /* 0: nothing is said */
};

/* The properties of a tool's parameters (view), or NULL; *known tells whether a tool has that name. */
const struct json *tool_properties(const struct json *tools, const char *name, bool *known);
struct argument_types argument_types(const struct json *properties, const char *key);
/* True when every value of these types is a string, so that it can be passed on before it is complete. */
bool argument_is_text(const struct argument_types *types);
/* Appends the value as JSON: converted to the first type that it fits, else as a string. */
void argument_convert(const struct argument_types *types, const char *s, size_t n, struct buf *out);

#endif

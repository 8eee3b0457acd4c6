/*
 * Errors as clients see them: the HTTP status, the words of each dialect, the field that is at fault. Plain values.
 */
#ifndef LILY_SERVE_API_ERROR_H
#define LILY_SERVE_API_ERROR_H

#include "json/json.h"

enum dialect { DIALECT_OPENAI, DIALECT_ANTHROPIC };

struct api_error {
    int http;         /* 0: none */
    const char *code; /* static; OpenAI's code, or NULL */
    char param[96];   /* the field, "" when none is at fault */
    struct lily_err err;
};

/* From a failure of a library function; body (may be NULL): to tell whether the message begins with one of its fields. */
void api_error_from(struct api_error *e, const struct lily_err *err, const struct json *body);
/* Fills an error of a given status. */
void api_error_set(struct api_error *e, int http, const char *code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* The JSON body. */
void api_error_body(const struct api_error *e, enum dialect d, struct buf *out);
/* The object {"type", "message"} of Anthropic, or {"message", "type", "param", "code"} of OpenAI. */
void api_error_object(const struct api_error *e, enum dialect d, struct buf *out);

#endif

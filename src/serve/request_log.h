/* One line for each request on stderr. Thread: L. */
#ifndef LILY_SERVE_REQUEST_LOG_H
#define LILY_SERVE_REQUEST_LOG_H

#include "serve/call.h"
#include "serve/server.h"

/* c, h and e (what the client was told) may be NULL. Texts of prompts and answers only when the options say so: messages of errors have none. */
void request_log(const struct server_options *o, const struct call *c, const struct http_head *h, int status, const struct api_error *e);

#endif

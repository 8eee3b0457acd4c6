/* The words for HTTP status numbers. Any thread. */
#ifndef LILY_SERVE_HTTP_STATUS_H
#define LILY_SERVE_HTTP_STATUS_H

const char *http_reason(int status); /* "Not Found"; never NULL */

#endif

/*
 * HTTP/1.1 on the loop: connections, keep-alive, pipelining, bodies with a limit, replies at once or as a stream, slow
 * clients, hang-ups. Not libevent's evhttp, which takes a half-closed connection for a dead one and answers a bad request
 * in HTML; this is its bufferevent and listener.
 *
 * Nouns: an exchange is one request and its reply. It is the handler's from on_head on until http_reply or http_end is called
 * on it, or on_gone with it; after these it may not be touched.
 *
 * A client that closes its sending side (FIN) may still read: on_fin tells, once, and from then on the connection is watched
 * for a reset. A client that takes nothing for http_options.stall_s is gone.
 *
 * Threads: the loop's. Lifetime: the loop and the handler outlive the server. Owned: http_free.
 */
#ifndef LILY_SERVE_HTTP_H
#define LILY_SERVE_HTTP_H

#include "serve/http_head.h"
#include "serve/loop.h"

struct http;
struct http_exchange;

struct http_handler {
    /* The head is there. false: it was answered already (http_reply), and the body is not wanted. */
    bool (*on_head)(void *ctx, struct http_exchange *x);
    void (*on_request)(void *ctx, struct http_exchange *x); /* the body, too */
    void (*on_fin)(void *ctx, struct http_exchange *x);     /* the client sends no more */
    void (*on_gone)(void *ctx, struct http_exchange *x);    /* the client is gone */
    void (*on_drained)(void *ctx, struct http_exchange *x); /* what was written has left, but for HTTP_LOW bytes at most */
    /* The body of an error reply that HTTP itself asks for (400, 413, …), and the reply's type of content. */
    const char *(*error_body)(void *ctx, const struct http_head *head, int status, const char *why, struct buf *out);
    void *ctx;
};

enum { HTTP_SLOWEST = 4 << 10, HTTP_LOW = 32 << 10, HTTP_HIGH = 256 << 10 }; /* a writer should stop above HTTP_HIGH bytes that wait */

struct http_options {
    const char *host;
    int port; /* 0: any free one */
    size_t max_body;
    size_t max_bodies;      /* bytes of the bodies of all open requests together; more are refused */
    int max_connections;    /* one more closes the one that was idle longest, or is closed itself */
    double idle_s, stall_s; /* seconds between two bytes from a client, to a client */
    double request_s;       /* a request may take that long to come, and a second more for each HTTP_SLOWEST bytes of its body */
};

lily_status http_listen(struct loop *l, const struct http_options *o, const struct http_handler *h, struct http **out,
                        struct lily_err *err);
int http_port(const struct http *s);
/* Takes no more connections, closes idle ones, and each other one behind its present reply. */
void http_close_listener(struct http *s);
void http_tick(struct http *s); /* now and then: closes those whose request does not come to its end */
bool http_flushed(const struct http *s); /* no exchange is open and no reply waits to leave */
int http_n_connections(const struct http *s);
void http_free(struct http *s); /* closes everything; no callbacks. NULL is fine */

const struct http_head *http_head(const struct http_exchange *x); /* view, while the exchange lives */
void http_take_body(struct http_exchange *x, struct buf *out);    /* moved; once */
void http_set_user(struct http_exchange *x, void *user);
void *http_user(const struct http_exchange *x);
bool http_half_closed(const struct http_exchange *x); /* on_fin was called, or would have been before a user was set */

/* extra: further header lines, each ended by CR LF; "" for none. */
void http_reply(struct http_exchange *x, int status, const char *type, const char *extra, const void *body, size_t n);
/* A reply of unknown length: http_begin, http_write any number of times, http_end. */
void http_begin(struct http_exchange *x, int status, const char *type, const char *extra);
void http_write(struct http_exchange *x, const void *data, size_t n);
void http_end(struct http_exchange *x);
void http_abort(struct http_exchange *x); /* closes the connection at once; no callback */
size_t http_waiting(const struct http_exchange *x); /* bytes written that have not left */

#endif

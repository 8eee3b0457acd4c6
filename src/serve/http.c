/* Connections: reading requests, giving them to the handler, writing replies. */
#include "serve/http.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>

#include "base/clock.h"
#include "base/mem.h"
#include "serve/http_status.h"

enum conn_state {
    CONN_HEAD,     /* waiting for, or reading, a head */
    CONN_BODY,
    CONN_HANDLING, /* the exchange is the handler's */
    CONN_CLOSING   /* the last reply leaves; then what the client still sends is read and dropped for a moment */
};

enum { PIPELINE = 64 << 10, DISCARD_MAX = 512 << 20 };
static const struct timeval watch_every = {0, 20000}, linger_for = {2, 0}, retry_accept = {0, 100000};

struct http_exchange {
    struct http *server;     /* borrowed */
    struct http_exchange *prev, *next; /* all connections */
    struct bufferevent *bev; /* owned */
    struct event *watch;     /* owned; looks for a reset after a FIN, and ends lingering */
    enum conn_state state;
    struct http_head head;   /* owned; while CONN_BODY and CONN_HANDLING */
    struct buf body;         /* owned */
    struct http_chunks chunks;
    size_t counted;          /* bytes of its body in http.bodies */
    bool begun;              /* bytes of the next request are there */
    double begun_ms;         /* since when, or since when there is none */
    bool fin;                /* the client sends no more */
    bool streaming;          /* between http_begin and http_end */
    bool chunked_reply, bodiless;
    bool unread;             /* the body of the request is not read, and will not be */
    bool keep;               /* the connection stays open behind this reply */
    bool shut;               /* our side was closed; lingering */
    bool full;               /* was above HTTP_LOW: on_drained is owed */
    size_t discarded;
    void *user;
};

struct http {
    struct loop *loop; /* borrowed */
    struct http_options opt;
    struct http_handler handler;
    struct evconnlistener *listener; /* owned; NULL once closed */
    struct event *retry;             /* owned; goes on accepting */
    struct http_exchange *first;
    size_t bodies; /* bytes of bodies of open requests */
    int n, port;
    bool closing;
};

static void read_requests(struct http_exchange *x);

/* ---- connections ---- */

/* What an exchange held is over. */
static void forget_request(struct http_exchange *x)
{
    http_head_free(&x->head);
    buf_free(&x->body);
    x->server->bodies -= x->counted;
    x->counted = 0;
    x->begun = false;
    x->begun_ms = clock_ms();
}

static void conn_free(struct http_exchange *x)
{
    if (x->prev) x->prev->next = x->next;
    else x->server->first = x->next;
    if (x->next) x->next->prev = x->prev;
    x->server->n--;
    if (x->watch) event_free(x->watch);
    bufferevent_free(x->bev);
    forget_request(x);
    free(x);
}

/* The client is gone, or must be. */
static void conn_drop(struct http_exchange *x)
{
    if (x->state == CONN_HANDLING) {
        x->state = CONN_CLOSING;
        x->server->handler.on_gone(x->server->handler.ctx, x);
    }
    conn_free(x);
}

static void set_timeouts(struct http_exchange *x, bool reading)
{
    struct timeval idle = {(time_t)x->server->opt.idle_s, 0}, stall = {(time_t)x->server->opt.stall_s, 0};
    bufferevent_set_timeouts(x->bev, reading ? &idle : NULL, &stall);
}

/* ---- replies ---- */

static void write_head(struct http_exchange *x, int status, const char *type, const char *extra)
{
    struct evbuffer *out = bufferevent_get_output(x->bev);
    evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\n", status, http_reason(status));
    if (*type) evbuffer_add_printf(out, "Content-Type: %s\r\n", type);
    evbuffer_add_printf(out, "%s%s", extra, x->keep ? "" : "Connection: close\r\n");
}

/* Our side of the connection ends behind what waits to be written. */
static void finish_writing(struct http_exchange *x)
{
    if (evbuffer_get_length(bufferevent_get_output(x->bev)) > 0) return;
    if (x->shut) return;
    x->shut = true;
    shutdown(bufferevent_getfd(x->bev), SHUT_WR);
    if (x->fin) {
        conn_free(x);
        return;
    }
    event_add(x->watch, &linger_for);
}

/* The reply is complete: on to the next request, or to the end. */
static void end_exchange(struct http_exchange *x)
{
    forget_request(x);
    x->user = NULL;
    x->streaming = x->full = false;
    if (x->keep) {
        x->state = CONN_HEAD;
        set_timeouts(x, true);
        /* Not from here: the handler is still in its call. */
        bufferevent_trigger(x->bev, EV_READ, BEV_OPT_DEFER_CALLBACKS | BEV_TRIG_IGNORE_WATERMARKS);
        return;
    }
    x->state = CONN_CLOSING;
    set_timeouts(x, false);
    bufferevent_enable(x->bev, EV_READ);
    bufferevent_trigger(x->bev, EV_WRITE, BEV_OPT_DEFER_CALLBACKS | BEV_TRIG_IGNORE_WATERMARKS);
}

static void decide_keep(struct http_exchange *x)
{
    bool more = !x->fin || evbuffer_get_length(bufferevent_get_input(x->bev)) > 0;
    x->keep = x->state == CONN_HANDLING && x->head.keep_alive && !x->unread && more && !x->server->closing;
}

void http_reply(struct http_exchange *x, int status, const char *type, const char *extra, const void *body, size_t n)
{
    bool bodiless = x->head.method && strcmp(x->head.method, "HEAD") == 0;
    decide_keep(x);
    write_head(x, status, type, extra);
    if (status == 204 || status == 304) evbuffer_add_printf(bufferevent_get_output(x->bev), "\r\n");
    else evbuffer_add_printf(bufferevent_get_output(x->bev), "Content-Length: %zu\r\n\r\n", n);
    if (!bodiless && n) bufferevent_write(x->bev, body, n);
    end_exchange(x);
}

void http_begin(struct http_exchange *x, int status, const char *type, const char *extra)
{
    decide_keep(x);
    x->chunked_reply = x->head.minor == 1;
    if (!x->chunked_reply) x->keep = false;
    x->bodiless = strcmp(x->head.method, "HEAD") == 0;
    x->streaming = true;
    write_head(x, status, type, extra);
    evbuffer_add_printf(bufferevent_get_output(x->bev), "%s\r\n", x->chunked_reply ? "Transfer-Encoding: chunked\r\n" : "");
}

/*
 * Sends at once what the socket takes where nothing waits before it; libevent would ask for the socket's state first, three system
 * calls for every token. Returns how much; what is wrong with the connection shows when the rest is written.
 */
static size_t send_now(const struct http_exchange *x, const struct iovec *parts, int n)
{
    const struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = (size_t)n};
    if (http_waiting(x) > 0) return 0;
    ssize_t sent = sendmsg(bufferevent_getfd(x->bev), &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent > 0 ? (size_t)sent : 0;
}

void http_write(struct http_exchange *x, const void *data, size_t n)
{
    char size[24] = "";
    struct evbuffer *out = bufferevent_get_output(x->bev);
    if (n == 0 || x->bodiless) return;
    if (x->chunked_reply) snprintf(size, sizeof size, "%zx\r\n", n);
    const char *end = x->chunked_reply ? "\r\n" : "";
    const struct iovec parts[] = {{size, strlen(size)}, {(void *)(uintptr_t)data, n}, {(void *)(uintptr_t)end, strlen(end)}};
    size_t sent = send_now(x, parts, 3);
    for (int i = 0; i < 3; i++) {
        size_t skip = sent < parts[i].iov_len ? sent : parts[i].iov_len;
        evbuffer_add(out, (const char *)parts[i].iov_base + skip, parts[i].iov_len - skip);
        sent -= skip;
    }
    if (evbuffer_get_length(out) > HTTP_LOW) x->full = true;
}

void http_end(struct http_exchange *x)
{
    if (x->chunked_reply && !x->bodiless) bufferevent_write(x->bev, "0\r\n\r\n", 5);
    end_exchange(x);
}

void http_abort(struct http_exchange *x)
{
    conn_free(x);
}

size_t http_waiting(const struct http_exchange *x)
{
    return evbuffer_get_length(bufferevent_get_output(x->bev));
}

/* An error of HTTP itself; the connection ends with it. */
static void refuse(struct http_exchange *x, int status, const char *why)
{
    struct buf body = {0};
    const struct http_handler *h = &x->server->handler;
    const char *type = h->error_body(h->ctx, x->head.text ? &x->head : NULL, status, why, &body);
    x->state = CONN_CLOSING; /* so that it is not kept */
    http_reply(x, status, type, status == 503 ? "Retry-After: 2\r\n" : "", buf_str(&body), body.len);
    buf_free(&body);
}

/* ---- requests ---- */

/* The body is complete. */
static void hand_over(struct http_exchange *x)
{
    x->state = CONN_HANDLING;
    x->unread = false;
    set_timeouts(x, false);
    x->server->handler.on_request(x->server->handler.ctx, x);
}

/* No further request will come. */
static void no_more(struct http_exchange *x)
{
    x->state = CONN_CLOSING;
    bufferevent_trigger(x->bev, EV_WRITE, BEV_OPT_DEFER_CALLBACKS | BEV_TRIG_IGNORE_WATERMARKS);
}

/* Reads a head. False when there is nothing more to do now. */
static bool step_head(struct http_exchange *x, struct evbuffer *in)
{
    const char *why = "";
    size_t have = evbuffer_get_length(in);
    if (http_waiting(x) > HTTP_HIGH) return false; /* goes on when the client has read */
    while (have > 0 && (evbuffer_pullup(in, 1)[0] == '\r' || evbuffer_pullup(in, 1)[0] == '\n')) {
        evbuffer_drain(in, 1); /* blank lines between requests */
        have--;
    }
    if (have > 0 && !x->begun) {
        x->begun = true;
        x->begun_ms = clock_ms();
    }
    size_t look = have < HTTP_MAX_HEAD ? have : HTTP_MAX_HEAD;
    const char *bytes = have ? (const char *)evbuffer_pullup(in, (ev_ssize_t)look) : "";
    size_t n = have ? http_head_end(bytes, look) : 0;
    if (n == 0) {
        if (have >= HTTP_MAX_HEAD) refuse(x, 431, "the request's head is too long");
        else if (x->fin || x->server->closing) no_more(x);
        return false;
    }
    int status = http_head_parse(bytes, n, &x->head, &why);
    evbuffer_drain(in, n);
    if (status) {
        refuse(x, status, why);
        return false;
    }
    if (x->head.length > 0 && (uint64_t)x->head.length > x->server->opt.max_body) {
        refuse(x, 413, "the request's body is too long");
        return false;
    }
    memset(&x->chunks, 0, sizeof x->chunks);
    x->state = CONN_HANDLING; /* for on_head, which may reply */
    x->unread = x->head.length != 0;
    if (!x->server->handler.on_head(x->server->handler.ctx, x)) return false;
    x->state = CONN_BODY;
    if (x->head.expect_continue && x->head.length != 0) bufferevent_write(x->bev, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    return true;
}

static const char no_memory[] = "there is no memory for the request's body; try again";

/* Counts what came of a body. False: there is more of all bodies than may be, and the request is refused. */
static bool count_body(struct http_exchange *x)
{
    x->server->bodies += x->body.len - x->counted;
    x->counted = x->body.len;
    if (x->server->bodies <= x->server->opt.max_bodies) return true;
    refuse(x, 503, "too many long requests are being read; try again");
    return false;
}

/* Reads the body. False when there is nothing more to do now. */
static bool step_body(struct http_exchange *x, struct evbuffer *in)
{
    size_t have = evbuffer_get_length(in);
    if (!x->head.chunked) {
        size_t want = (size_t)x->head.length - x->body.len, n = have < want ? have : want;
        if (!buf_try_reserve(&x->body, n)) {
            refuse(x, 503, no_memory);
            return false;
        }
        evbuffer_remove(in, x->body.data + x->body.len, n);
        x->body.len += n;
        x->body.data[x->body.len] = 0;
        if (!count_body(x)) return false;
        if (n == want) hand_over(x);
        else if (x->fin) no_more(x);
        return false;
    }
    size_t used = 0, part = evbuffer_get_contiguous_space(in);
    enum http_chunk_result r = HTTP_CHUNK_MORE;
    if (part) r = http_chunks_feed(&x->chunks, (const char *)evbuffer_pullup(in, (ev_ssize_t)part), part, x->server->opt.max_body, &x->body, &used);
    evbuffer_drain(in, used);
    if (!count_body(x)) return false;
    if (r == HTTP_CHUNK_NO_MEMORY) refuse(x, 503, no_memory);
    if (r == HTTP_CHUNK_BAD) refuse(x, 400, "the chunked body is malformed");
    if (r == HTTP_CHUNK_TOO_LONG) refuse(x, 413, "the request's body is too long");
    if (r == HTTP_CHUNK_DONE) hand_over(x);
    if (r == HTTP_CHUNK_MORE && part == 0 && x->fin) no_more(x);
    return r == HTTP_CHUNK_MORE && part > 0;
}

static void read_requests(struct http_exchange *x)
{
    struct evbuffer *in = bufferevent_get_input(x->bev);
    for (;;) {
        if (x->state == CONN_HEAD) {
            if (!step_head(x, in)) return;
        } else if (x->state == CONN_BODY) {
            if (!step_body(x, in)) return;
        } else {
            return;
        }
    }
}

/* ---- callbacks of a connection ---- */

static void on_readable(struct bufferevent *bev, void *arg)
{
    struct http_exchange *x = arg;
    if (x->state == CONN_CLOSING) {
        struct evbuffer *in = bufferevent_get_input(bev);
        x->discarded += evbuffer_get_length(in);
        evbuffer_drain(in, evbuffer_get_length(in));
        if (x->discarded > DISCARD_MAX) conn_free(x);
        return;
    }
    read_requests(x);
}

static void on_written(struct bufferevent *bev, void *arg)
{
    struct http_exchange *x = arg;
    (void)bev;
    if (x->state == CONN_CLOSING) {
        finish_writing(x);
    } else if (x->state == CONN_HEAD) {
        read_requests(x);
    } else if (x->state == CONN_HANDLING && x->full && http_waiting(x) <= HTTP_LOW) {
        x->full = false;
        x->server->handler.on_drained(x->server->handler.ctx, x);
    }
}

/* After a FIN only a look at the socket tells of a reset. Lingering ends here, too. */
static void on_watch(evutil_socket_t fd, short what, void *arg)
{
    struct http_exchange *x = arg;
    struct pollfd p = {bufferevent_getfd(x->bev), 0, 0};
    (void)fd;
    (void)what;
    if (x->shut || poll(&p, 1, 0) != 0) conn_drop(x);
    else event_add(x->watch, &watch_every);
}

static void on_problem(struct bufferevent *bev, short what, void *arg)
{
    struct http_exchange *x = arg;
    (void)bev;
    bool replying = x->state == CONN_HEAD && http_waiting(x) > 0;
    if (!(what & BEV_EVENT_EOF) || (x->state == CONN_HEAD && !replying) || x->state == CONN_BODY || x->shut) {
        conn_drop(x); /* an error, a stall, or a request that will not be complete */
        return;
    }
    x->fin = true; /* requests that wait for the client to read are still answered (step_head) */
    event_add(x->watch, &watch_every);
    if (x->state == CONN_HANDLING) x->server->handler.on_fin(x->server->handler.ctx, x);
}

/* ---- the listener ---- */

static struct http_exchange *idle_longest(const struct http *s)
{
    struct http_exchange *oldest = NULL;
    for (struct http_exchange *x = s->first; x; x = x->next) {
        bool idle = x->state == CONN_HEAD && !x->begun && http_waiting(x) == 0;
        if (idle && (!oldest || x->begun_ms < oldest->begun_ms)) oldest = x;
    }
    return oldest;
}

/* Bytes of a request are there that were not read yet: the listener may be served before the others. */
static bool has_come(const struct http_exchange *x)
{
    char byte;
    return recv(bufferevent_getfd(x->bev), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

/* The connection that is idle longest gives way; false when there is none. */
static bool drop_idle(struct http *s)
{
    struct http_exchange *x;
    while ((x = idle_longest(s)) && has_come(x)) {
        x->begun = true;
        x->begun_ms = clock_ms();
    }
    if (x) conn_free(x);
    return x != NULL;
}

static void on_accept(struct evconnlistener *l, evutil_socket_t fd, struct sockaddr *a, int n, void *arg)
{
    struct http *s = arg;
    int one = 1;
    (void)l;
    (void)a;
    (void)n;
    if (s->n >= s->opt.max_connections && !drop_idle(s)) {
        close(fd);
        return;
    }
    struct http_exchange *x = mem_new(sizeof *x);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    x->server = s;
    x->begun_ms = clock_ms();
    x->bev = bufferevent_socket_new(loop_base(s->loop), fd, BEV_OPT_CLOSE_ON_FREE);
    x->watch = event_new(loop_base(s->loop), -1, 0, on_watch, x);
    x->next = s->first;
    if (s->first) s->first->prev = x;
    s->first = x;
    s->n++;
    bufferevent_setcb(x->bev, on_readable, on_written, on_problem, x);
    bufferevent_setwatermark(x->bev, EV_READ, 0, PIPELINE);
    bufferevent_setwatermark(x->bev, EV_WRITE, HTTP_LOW, 0);
    set_timeouts(x, true);
    bufferevent_enable(x->bev, EV_READ | EV_WRITE);
}

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
    struct http *s = arg;
    (void)fd;
    (void)what;
    if (s->listener) evconnlistener_enable(s->listener);
}

/* Out of descriptors, sooner than the limit says when the rest of the process, or of the system, has many. */
static void on_accept_error(struct evconnlistener *l, void *arg)
{
    struct http *s = arg;
    if ((errno == EMFILE || errno == ENFILE) && drop_idle(s)) return; /* the loop comes again at once */
    evconnlistener_disable(l); /* waits a moment instead of spinning */
    event_add(s->retry, &retry_accept);
}

static int port_of(evutil_socket_t fd)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    char port[16];
    if (getsockname(fd, (struct sockaddr *)&a, &n) != 0) return 0;
    if (getnameinfo((struct sockaddr *)&a, n, NULL, 0, port, sizeof port, NI_NUMERICSERV) != 0) return 0;
    return (int)strtol(port, NULL, 10);
}

static lily_status bind_to(struct http *s, struct lily_err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *list;
    char port[16];
    snprintf(port, sizeof port, "%d", s->opt.port);
    int rc = getaddrinfo(s->opt.host, port, &hints, &list);
    if (rc != 0) LILY_FAIL(err, LILY_ERR_USAGE, "--host %s: %s", s->opt.host, gai_strerror(rc));
    for (struct addrinfo *a = list; a && !s->listener; a = a->ai_next)
        s->listener = evconnlistener_new_bind(loop_base(s->loop), on_accept, s,
                                              LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE, 1024, a->ai_addr,
                                              (int)a->ai_addrlen);
    int why = errno;
    freeaddrinfo(list);
    if (s->listener) return LILY_OK;
    err_set(err, LILY_ERR_IO, "cannot listen on %s port %d: %s", s->opt.host, s->opt.port, strerror(why));
    if (why == EADDRINUSE) err_hint(err, "another program uses the port; choose one with --port");
    return LILY_ERR_IO;
}

lily_status http_listen(struct loop *l, const struct http_options *o, const struct http_handler *h, struct http **out,
                        struct lily_err *err)
{
    struct http *s = mem_new(sizeof *s);
    s->loop = l;
    s->opt = *o;
    s->handler = *h;
    s->retry = event_new(loop_base(l), -1, 0, on_retry, s);
    *out = NULL;
    lily_status st = bind_to(s, err);
    if (st != LILY_OK) {
        http_free(s);
        return st;
    }
    evconnlistener_set_error_cb(s->listener, on_accept_error);
    s->port = port_of(evconnlistener_get_fd(s->listener));
    *out = s;
    return LILY_OK;
}

void http_close_listener(struct http *s)
{
    if (s->listener) evconnlistener_free(s->listener);
    s->listener = NULL;
    s->closing = true;
    for (struct http_exchange *x = s->first, *next; x; x = next) {
        next = x->next;
        if (x->state == CONN_HEAD && http_waiting(x) == 0) conn_free(x);
    }
}

void http_tick(struct http *s)
{
    double now = clock_ms();
    for (struct http_exchange *x = s->first, *next; x; x = next) {
        double most = 1e3 * (s->opt.request_s + (double)(x->body.len / HTTP_SLOWEST));
        next = x->next;
        if (((x->state == CONN_HEAD && x->begun) || x->state == CONN_BODY) && http_waiting(x) == 0 && now - x->begun_ms > most)
            refuse(x, 408, "the request did not come to its end in time");
    }
}

void http_free(struct http *s)
{
    if (!s) return;
    while (s->first) conn_free(s->first);
    if (s->listener) evconnlistener_free(s->listener);
    if (s->retry) event_free(s->retry);
    free(s);
}

int http_port(const struct http *s)
{
    return s->port;
}

int http_n_connections(const struct http *s)
{
    return s->n;
}

const struct http_head *http_head(const struct http_exchange *x)
{
    return &x->head;
}

void http_take_body(struct http_exchange *x, struct buf *out)
{
    *out = x->body;
    memset(&x->body, 0, sizeof x->body);
}

void http_set_user(struct http_exchange *x, void *user)
{
    x->user = user;
}

void *http_user(const struct http_exchange *x)
{
    return x->user;
}

bool http_flushed(const struct http *s)
{
    for (const struct http_exchange *x = s->first; x; x = x->next)
        if (x->state == CONN_HANDLING || http_waiting(x) > 0) return false;
    return true;
}

bool http_half_closed(const struct http_exchange *x)
{
    return x->fin;
}

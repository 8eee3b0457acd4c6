/*
 * Clients for the measurements of lily serve, in one thread and without a library, so that what is measured is the server.
 * Each prints one line of JSON; exit status 1 when a stream was not as it should be.
 * usage: serve_load PORT streams CLIENTS TOKENS_PER_SECOND SECONDS   streams of a fake engine that takes scripts from prompts
 *        serve_load PORT first COUNT                                 one stream after the other on one connection
 *        serve_load PORT tokens FILE                                 one stream with the body in FILE
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 8192, MAX_CLIENTS = 1024 };

struct client {
    int fd;
    char line[LINE_MAX_BYTES]; /* the line that is not complete yet */
    size_t n;
    double *at;                /* owned; (most) when each token came, in ms */
    int n_tokens, most;
    double sent, first_byte;   /* ms; first_byte 0: none yet */
    bool ok, done, bad;        /* status 200 seen; [DONE] seen; an error seen */
};

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void die(const char *what)
{
    perror(what);
    exit(2);
}

static int connect_to(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) != 0) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void send_body(struct client *c, const char *body)
{
    size_t n = strlen(body), size = n + 200;
    char *request = malloc(size);
    int len = snprintf(request, size, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s", n, body);
    c->sent = now_ms();
    for (int at = 0; at < len;) {
        ssize_t k = write(c->fd, request + at, (size_t)(len - at));
        if (k <= 0) die("write");
        at += (int)k;
    }
    free(request);
}

/* What a whole line says. Lines of the chunked framing say nothing. */
static void take_line(struct client *c, double now)
{
    c->line[c->n] = 0;
    if (strncmp(c->line, "HTTP/1.1 200 ", 13) == 0) c->ok = true;
    if (strncmp(c->line, "data: [DONE]", 12) == 0) c->done = true;
    if (strncmp(c->line, "data: {", 7) != 0) return;
    if (strstr(c->line, "\"error\"")) c->bad = true;
    const char *delta = strstr(c->line, "content\":\""); /* also that of reasoning_content */
    if (!delta || delta[10] == '"') return;
    if (c->n_tokens < c->most) c->at[c->n_tokens] = now;
    c->n_tokens++;
}

/* Takes what has come. False: the connection has ended. */
static bool take(struct client *c)
{
    static char data[1 << 16];
    ssize_t n = read(c->fd, data, sizeof data);
    double now = now_ms();
    if (n < 0 && errno == EINTR) return true;
    if (n <= 0) return false;
    if (!c->first_byte) c->first_byte = now;
    for (ssize_t i = 0; i < n; i++) {
        if (data[i] == '\n') {
            take_line(c, now);
            c->n = 0;
        } else if (c->n + 1 < sizeof c->line) {
            c->line[c->n++] = data[i];
        }
    }
    return true;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_spread(const char *name, double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_size);
    printf("\"%s\":{\"p50\":%.3f,\"p99\":%.3f,\"p999\":%.3f,\"max\":%.3f}", name, n ? v[n / 2] : 0, n ? v[n * 99 / 100] : 0,
           n ? v[n * 999 / 1000] : 0, n ? v[n - 1] : 0);
}

/* ---- many streams ---- */

/* How much later each token came than the script says, measured from the stream's earliest. */
static size_t lateness(const struct client *c, double every, double *out)
{
    double base = 1e300;
    int n = c->n_tokens < c->most ? c->n_tokens : c->most;
    for (int i = 0; i < n; i++)
        if (c->at[i] - i * every < base) base = c->at[i] - i * every;
    for (int i = 0; i < n; i++) out[i] = c->at[i] - i * every - base;
    return (size_t)n;
}

static int streams(int port, int n, double rate, double seconds)
{
    static struct client clients[MAX_CLIENTS];
    char body[400];
    int want = (int)(rate * seconds), open = n, wrong = 0, poll = epoll_create1(0);
    double every = 1e3 / rate, start = now_ms();
    snprintf(body, sizeof body,
             "{\"stream\":true,\"enable_thinking\":false,\"messages\":[{\"role\":\"user\",\"content\":\"#script {\\\"tokens\\\":"
             "[{\\\"text\\\":\\\"word\\\",\\\"delay_ms\\\":%.6f,\\\"repeat\\\":%d}]}\"}]}",
             every, want);
    for (int i = 0; i < n; i++) {
        struct client *c = &clients[i];
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        *c = (struct client){.fd = connect_to(port), .at = calloc((size_t)want, sizeof *c->at), .most = want};
        send_body(c, body);
        if (epoll_ctl(poll, EPOLL_CTL_ADD, c->fd, &e) != 0) die("epoll_ctl");
    }
    while (open > 0 && now_ms() - start < 3e3 * seconds + 30e3) {
        struct epoll_event events[64];
        int k = epoll_wait(poll, events, 64, 1000);
        for (int i = 0; i < k; i++) {
            struct client *c = events[i].data.ptr;
            if (take(c) && !c->done) continue;
            close(c->fd);
            open--;
        }
    }
    double *late = calloc((size_t)n * (size_t)want + 1, sizeof *late);
    size_t n_late = 0;
    for (int i = 0; i < n; i++) {
        const struct client *c = &clients[i];
        wrong += !c->ok || !c->done || c->bad || c->n_tokens != want;
        n_late += lateness(c, every, late + n_late);
    }
    printf("{\"clients\":%d,\"tokens_each\":%d,\"wrong\":%d,\"seconds\":%.1f,", n, want, wrong, (now_ms() - start) / 1e3);
    print_spread("late_ms", late, n_late);
    puts("}");
    return wrong > 0;
}

/* ---- one stream ---- */

static bool whole_stream(struct client *c, const char *body)
{
    c->n_tokens = 0;
    c->n = 0;
    c->first_byte = 0;
    c->ok = c->done = c->bad = false;
    send_body(c, body);
    while (!c->done)
        if (!take(c)) return false;
    return c->ok && !c->bad;
}

static int first(int port, int count)
{
    double *bytes = calloc((size_t)count, sizeof *bytes), *tokens = calloc((size_t)count, sizeof *tokens), one;
    struct client c = {.fd = connect_to(port), .at = &one, .most = 1};
    for (int i = 0; i < count; i++) {
        bool good = whole_stream(&c, "{\"stream\":true,\"enable_thinking\":false,\"messages\":[{\"role\":\"user\",\"content\":"
                                     "\"#script {\\\"tokens\\\":[\\\"word\\\"]}\"}]}");
        if (!good || c.n_tokens != 1) return 1;
        bytes[i] = c.first_byte - c.sent;
        tokens[i] = one - c.sent;
        usleep(300); /* the end of the chunks, which follows [DONE] */
        char rest[64];
        if (recv(c.fd, rest, sizeof rest, MSG_DONTWAIT) == 0) return 1;
    }
    printf("{\"count\":%d,", count);
    print_spread("first_byte_ms", bytes, (size_t)count);
    putchar(',');
    print_spread("first_token_ms", tokens, (size_t)count);
    puts("}");
    return 0;
}

static int tokens(int port, const char *path)
{
    static char body[1 << 20];
    static double at[1 << 16];
    FILE *f = fopen(path, "r");
    if (!f) die(path);
    body[fread(body, 1, sizeof body - 1, f)] = 0;
    fclose(f);
    struct client c = {.fd = connect_to(port), .at = at, .most = 1 << 16};
    if (!whole_stream(&c, body) || c.n_tokens < 2) return 1;
    printf("{\"deltas\":%d,\"ms\":%.3f}\n", c.n_tokens, at[c.n_tokens - 1] - at[0]);
    return 0;
}

int main(int argc, char **argv)
{
    int port = argc > 3 ? atoi(argv[1]) : 0, clients = argc > 3 ? atoi(argv[3]) : 0;
    if (argc == 6 && strcmp(argv[2], "streams") == 0 && clients > 0 && clients <= MAX_CLIENTS)
        return streams(port, clients, atof(argv[4]), atof(argv[5]));
    if (argc == 4 && strcmp(argv[2], "first") == 0 && clients > 0) return first(port, clients);
    if (argc == 4 && strcmp(argv[2], "tokens") == 0) return tokens(port, argv[3]);
    fputs("usage: serve_load PORT streams CLIENTS RATE SECONDS | first COUNT | tokens FILE\n", stderr);
    return 2;
}

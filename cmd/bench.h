/* The parts of `lily bench`: what was measured, and the forms it is told in. Thread: the main one. */
#ifndef LILY_CMD_BENCH_H
#define LILY_CMD_BENCH_H

#include "base/buf.h"
#include "json/json.h"
#include "run/bench.h"

enum { MAX_PEERS = 16 };

/* Numbers of another engine, from a file (bench/peers.json). */
struct peer {
    const char *name;        /* view into the file's tree */
    const struct json *rows; /* view: array of {phase, context, tok_s} */
};

struct peers {
    struct json *root; /* owned; NULL: none */
    struct peer list[MAX_PEERS];
    int n;
};

/* Reads the peers of a device ("cpu", "cuda"); all others are left out. */
lily_status peers_read(const char *path, const char *device, struct peers *out, struct lily_err *err);
void peers_free(struct peers *p);
/* Tokens per second of a peer, 0 where the file has no such number. */
double peer_value(const struct peer *p, enum phase phase, int context);

/* A whole report. Everything is borrowed. */
struct bench_report {
    const struct bench_result *result;
    const struct bench_options *options;
    const struct peers *peers;
    struct model *model;
    const char *model_name; /* folder, or "synthetic 35b, seed 1" */
    double load_ms;
    size_t resident;     /* bytes, after loading */
    bool steps;          /* the table ends with where the time went */
    char date[32];       /* ISO 8601, UTC */
    char binary[65];     /* SHA-256 of the program */
    char cpu[128];
};

const char *phase_name(enum phase phase); /* "prefill", "decode" */
struct json *report_json(const struct bench_report *r);
void report_table(const struct bench_report *r, struct buf *out);
void report_csv(const struct bench_report *r, struct buf *out);
void report_markdown(const struct bench_report *r, struct buf *out);
void report_svg(const struct bench_report *r, struct buf *out);

#endif

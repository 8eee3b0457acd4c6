/* The file of peer results. */
#include <string.h>

#include "bench.h"

enum { MAX_PEERS_FILE = 4 << 20 };

const char *phase_name(enum phase phase)
{
    return phase == PHASE_PREFILL ? "prefill" : "decode";
}

static lily_status check_row(const struct json *row, const char *what, struct lily_err *err)
{
    const char *phase = NULL;
    int64_t context = 0;
    double tok_s = 0;
    if (json_kind(row) != JSON_OBJECT) LILY_FAIL(err, LILY_ERR_FORMAT, "%s: a row is %s, expected an object", what, json_kind_name(row));
    LILY_TRY(json_get_string((struct json_field){row, what, "phase"}, &phase, err));
    LILY_TRY(json_get_int((struct json_field){row, what, "context"}, 1, 1 << 30, &context, err));
    LILY_TRY(json_get_double((struct json_field){row, what, "tok_s"}, 0, 1e12, &tok_s, err));
    if (!phase || (strcmp(phase, "prefill") != 0 && strcmp(phase, "decode") != 0) || !context || tok_s <= 0)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: a row needs phase (prefill or decode), context and tok_s above 0", what);
    return LILY_OK;
}

static lily_status add_peer(struct peers *p, const struct json *v, const char *path, const char *device, struct lily_err *err)
{
    const char *name = NULL, *on = NULL;
    if (json_kind(v) != JSON_OBJECT) LILY_FAIL(err, LILY_ERR_FORMAT, "%s: a peer is %s, expected an object", path, json_kind_name(v));
    LILY_TRY(json_get_string((struct json_field){v, path, "name"}, &name, err));
    LILY_TRY(json_get_string((struct json_field){v, path, "device"}, &on, err));
    const struct json *rows = json_get(v, "rows");
    if (!name || !on || !rows || json_kind(rows) != JSON_ARRAY)
        LILY_FAIL(err, LILY_ERR_FORMAT, "%s: a peer needs name, device and rows", path);
    for (size_t i = 0; i < json_size(rows); i++) LILY_TRY(check_row(json_at(rows, i), path, err));
    if (strcmp(on, device) != 0) return LILY_OK;
    if (p->n == MAX_PEERS) LILY_FAIL(err, LILY_ERR_LIMIT, "%s: more than %d peers of the device %s", path, MAX_PEERS, device);
    p->list[p->n++] = (struct peer){name, rows};
    return LILY_OK;
}

lily_status peers_read(const char *path, const char *device, struct peers *out, struct lily_err *err)
{
    memset(out, 0, sizeof *out);
    LILY_TRY(json_parse_file(path, MAX_PEERS_FILE, &out->root, err));
    const struct json *list = json_get(out->root, "peers");
    lily_status st = LILY_OK;
    if (!list || json_kind(list) != JSON_ARRAY) st = err_set(err, LILY_ERR_FORMAT, "%s: peers is missing, expected an array", path);
    for (size_t i = 0; st == LILY_OK && i < json_size(list); i++) st = add_peer(out, json_at(list, i), path, device, err);
    if (st != LILY_OK) peers_free(out);
    return st;
}

void peers_free(struct peers *p)
{
    json_free(p->root);
    memset(p, 0, sizeof *p);
}

double peer_value(const struct peer *p, enum phase phase, int context)
{
    for (size_t i = 0; i < json_size(p->rows); i++) {
        const struct json *row = json_at(p->rows, i);
        if (strcmp(json_string(json_get(row, "phase")), phase_name(phase)) == 0 && json_int(json_get(row, "context")) == context)
            return json_double(json_get(row, "tok_s"));
    }
    return 0;
}

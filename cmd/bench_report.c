/* A benchmark's results as a table, JSON, CSV and Markdown. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "base/size.h"
#include "bench.h"

static struct json *number(double v, int digits)
{
    char text[48];
    if (!isfinite(v)) return json_new_null();
    int n = snprintf(text, sizeof text, "%.*f", digits, v);
    return json_new_number_text(text, (size_t)n);
}

static struct json *known(double v, int digits)
{
    return v > 0 ? number(v, digits) : json_new_null();
}

static double steps_sum(const struct bench_row *row)
{
    double sum = 0;
    for (int i = 0; i < STEP_KINDS; i++) sum += row->step_ms[i];
    return sum;
}

static struct json *steps_json(const struct bench_row *r)
{
    if (steps_sum(r) <= 0) return json_new_null();
    struct json *v = json_new_object();
    for (int i = 0; i < STEP_KINDS; i++) json_put(v, step_name((enum step_kind)i), number(r->step_ms[i], 4));
    return v;
}

static struct json *row_json(const struct bench_report *rep, const struct bench_row *r)
{
    struct json *v = json_new_object(), *samples = json_new_array();
    json_put(v, "phase", json_new_string(phase_name(r->phase)));
    json_put(v, "context", json_new_int(r->context));
    json_put(v, "tokens", json_new_int(r->tokens));
    json_put(v, "tok_s", number(r->tok_s, 3));
    json_put(v, "spread", number(r->spread, 4));
    json_put(v, "gb_s", number(r->gb_s, 3));
    json_put(v, "gop_s", number(r->gop_s, 1));
    json_put(v, "floor_tok_s", known(r->floor_tok_s, 3));
    json_put(v, "share", known(r->share, 4));
    json_put(v, "joules_per_token", r->joules < 0 ? json_new_null() : number(r->joules, 4));
    json_put(v, "others", number(r->others, 4));
    json_put(v, "filled", json_new_bool(r->filled));
    json_put(v, "final", json_new_bool(r->final));
    json_put(v, "note", json_new_string(r->note));
    for (int i = 0; i < r->n_rounds; i++) json_add(samples, number(r->samples[i], 3));
    json_put(v, "samples", samples);
    json_put(v, "step_ms", steps_json(r));
    if (rep->peers->n) {
        struct json *peers = json_new_object();
        for (int i = 0; i < rep->peers->n; i++)
            json_put(peers, rep->peers->list[i].name, known(peer_value(&rep->peers->list[i], r->phase, r->context), 3));
        json_put(v, "peers", peers);
    }
    return v;
}

static struct json *manifest_json(const struct bench_report *r)
{
    struct json *v = json_new_object();
    json_put(v, "lily", json_new_string(LILY_VERSION));
    json_put(v, "binary_sha256", json_new_string(r->binary));
    json_put(v, "model_key", json_new_string(model_key(r->model)));
    json_put(v, "date", json_new_string(r->date));
    json_put(v, "rounds", json_new_int(r->options->rounds));
    json_put(v, "warm_up", json_new_bool(r->options->warm_up));
    json_put(v, "decode_steps", json_new_int(r->options->steps));
    json_put(v, "fill_from", r->options->fill_from ? json_new_int(r->options->fill_from) : json_new_null());
    json_put(v, "seed", json_new_int((int64_t)r->options->seed));
    return v;
}

static struct json *machine_json(const struct bench_report *r)
{
    const struct device_limits *l = &r->result->limits;
    struct json *v = json_new_object();
    json_put(v, "cpu", json_new_string(r->cpu));
    json_put(v, "processors", json_new_int(cpu_count()));
    json_put(v, "device", json_new_string(model_device(r->model)));
    json_put(v, "threads", json_new_int(model_threads(r->model)));
    json_put(v, "read_gb_s", known(l->read_gb_s, 2));
    json_put(v, "matmul_gop_s", known(l->matmul_gop_s, 1));
    json_put(v, "matmul_what", l->matmul_what ? json_new_string(l->matmul_what) : json_new_null());
    json_put(v, "slow", json_new_bool(l->read_gb_s > 0 && l->read_gb_s < l->slow_below_gb_s));
    return v;
}

struct json *report_json(const struct bench_report *r)
{
    struct json *top = json_new_object(), *model = json_new_object(), *rows = json_new_array();
    json_put(model, "name", json_new_string(r->model_name));
    json_put(model, "packed", json_new_bool(model_is_packed(r->model)));
    json_put(model, "kv_bytes", json_new_int(model_kv_bytes(r->model)));
    json_put(model, "load_ms", number(r->load_ms, 1));
    json_put(model, "resident", json_new_int((int64_t)r->resident));
    for (int i = 0; i < r->result->n_rows; i++) json_add(rows, row_json(r, &r->result->rows[i]));
    json_put(top, "manifest", manifest_json(r));
    json_put(top, "machine", machine_json(r));
    json_put(top, "model", model);
    json_put(top, "rows", rows);
    return top;
}

/* ---- text ---- */

static void add_limits(const struct bench_report *r, struct buf *out)
{
    const struct device_limits *l = &r->result->limits;
    if (l->read_gb_s > 0) buf_printf(out, "reads %.1f GB/s", l->read_gb_s);
    if (l->matmul_gop_s > 0) buf_printf(out, "%s%.0f Gop/s (%s)", l->read_gb_s > 0 ? ", " : "", l->matmul_gop_s, l->matmul_what);
    if (l->read_gb_s > 0 && l->read_gb_s < l->slow_below_gb_s)
        buf_printf(out, "; host slow: a machine of this kind reads %.0f GB/s or more", l->slow_below_gb_s);
}

static void add_head(const struct bench_report *r, struct buf *out)
{
    int rounds = 0; /* fewer than asked for where it was stopped */
    for (int i = 0; i < r->result->n_rows; i++)
        if (r->result->rows[i].n_rounds > rounds) rounds = r->result->rows[i].n_rounds;
    buf_printf(out, "%s on %s, %s, %s; loaded in %.1f s%s, %s resident\n", r->model_name, r->cpu, model_device(r->model),
               COUNT_TEXT(model_threads(r->model), "thread"), r->load_ms / 1e3, model_is_packed(r->model) ? " from a packed file" : "", SIZE_TEXT(r->resident));
    add_limits(r, out);
    buf_printf(out, "%slily %s, %s, median of %s%s\n", out->len && out->data[out->len - 1] != '\n' ? "; " : "", LILY_VERSION, r->date,
               COUNT_TEXT(rounds, "round"), r->options->warm_up ? "" : ", no warm-up");
}

/* A number or a dash. */
static const char *cell(char text[32], double v, int digits, const char *unit)
{
    if (v > 0) snprintf(text, 32, "%.*f%s", digits, v, unit);
    else snprintf(text, 32, "-");
    return text;
}

static int digits_of(double tok_s)
{
    return tok_s >= 1000 ? 0 : tok_s >= 100 ? 1 : 2;
}

enum { N_COLUMNS = 9 };
static const char *const columns[N_COLUMNS] = {"phase", "context", "tok/s", "spread", "GB/s", "Gop/s", "floor", "share", "J/token"};

static void row_cells(const struct bench_row *r, char cells[N_COLUMNS][32])
{
    snprintf(cells[0], 32, "%s", phase_name(r->phase));
    snprintf(cells[1], 32, "%d%s", r->context, r->filled ? "*" : "");
    snprintf(cells[2], 32, "%.*f%s", digits_of(r->tok_s), r->tok_s, r->final ? "" : "?");
    snprintf(cells[3], 32, "%.1f%%", 100 * r->spread);
    cell(cells[4], r->gb_s, 2, "");
    cell(cells[5], r->gop_s, 0, "");
    cell(cells[6], r->floor_tok_s, digits_of(r->floor_tok_s), "");
    cell(cells[7], 100 * r->share, 0, "%");
    cell(cells[8], r->joules, 2, "");
}

/* What the marks of the table mean, of those that it has. */
static void add_marks(const struct bench_result *result, struct buf *out)
{
    bool open = false, filled = false;
    for (int k = 0; k < result->n_rows; k++) {
        open = open || !result->rows[k].final;
        filled = filled || result->rows[k].filled;
    }
    if (open) buf_addz(out, "\n? not final: see the note.");
    if (filled) buf_addz(out, "\n* decode only, over a cache filled from a seed.");
    if (open || filled) buf_addc(out, '\n');
}

/* Where the time went, in milliseconds a token. */
static void add_steps(const struct bench_result *result, struct buf *out)
{
    for (int k = 0; k < result->n_rows; k++) {
        const struct bench_row *row = &result->rows[k];
        if (steps_sum(row) <= 0) continue;
        buf_printf(out, "%s %d, ms a token:", phase_name(row->phase), row->context);
        for (int i = 0; i < STEP_KINDS; i++) buf_printf(out, "%s %s %.3f", i ? "," : "", step_name((enum step_kind)i), row->step_ms[i]);
        buf_addc(out, '\n');
    }
}

void report_table(const struct bench_report *r, struct buf *out)
{
    char cells[N_COLUMNS][32], text[32];
    add_head(r, out);
    buf_addc(out, '\n');
    for (int i = 0; i < N_COLUMNS; i++) buf_printf(out, i ? " %9s" : "%-8s", columns[i]);
    for (int i = 0; i < r->peers->n; i++) buf_printf(out, "  %12.24s", r->peers->list[i].name);
    buf_addz(out, "  note\n");
    for (int k = 0; k < r->result->n_rows; k++) {
        const struct bench_row *row = &r->result->rows[k];
        row_cells(row, cells);
        for (int i = 0; i < N_COLUMNS; i++) buf_printf(out, i ? " %9s" : "%-8s", cells[i]);
        for (int i = 0; i < r->peers->n; i++) {
            double v = peer_value(&r->peers->list[i], row->phase, row->context);
            int width = (int)strnlen(r->peers->list[i].name, 24);
            buf_printf(out, "  %*s", width > 12 ? width : 12, cell(text, v, digits_of(v), ""));
        }
        buf_printf(out, "  %s\n", row->note);
    }
    add_marks(r->result, out);
    if (r->steps) add_steps(r->result, out);
}

void report_markdown(const struct bench_report *r, struct buf *out)
{
    char cells[N_COLUMNS][32], text[32];
    add_head(r, out);
    buf_addz(out, "\n|");
    for (int i = 0; i < N_COLUMNS; i++) buf_printf(out, " %s |", columns[i]);
    for (int i = 0; i < r->peers->n; i++) buf_printf(out, " %s |", r->peers->list[i].name);
    buf_addz(out, " note |\n|---|");
    for (int i = 1; i < N_COLUMNS + r->peers->n; i++) buf_addz(out, "--:|");
    buf_addz(out, "---|\n");
    for (int k = 0; k < r->result->n_rows; k++) {
        const struct bench_row *row = &r->result->rows[k];
        row_cells(row, cells);
        buf_addc(out, '|');
        for (int i = 0; i < N_COLUMNS; i++) buf_printf(out, " %s |", cells[i]);
        for (int i = 0; i < r->peers->n; i++) {
            double v = peer_value(&r->peers->list[i], row->phase, row->context);
            buf_printf(out, " %s |", cell(text, v, digits_of(v), ""));
        }
        buf_printf(out, " %s |\n", row->note);
    }
}

static void add_csv_text(const char *s, struct buf *out)
{
    buf_addc(out, '"');
    for (; *s; s++) {
        if (*s == '"') buf_addc(out, '"');
        buf_addc(out, *s);
    }
    buf_addc(out, '"');
}

void report_csv(const struct bench_report *r, struct buf *out)
{
    buf_addz(out, "phase,context,tokens,tok_s,spread,gb_s,gop_s,floor_tok_s,share,joules_per_token,others,filled,final,note");
    for (int i = 0; i < r->peers->n; i++) {
        buf_addc(out, ',');
        add_csv_text(r->peers->list[i].name, out);
    }
    buf_addc(out, '\n');
    for (int k = 0; k < r->result->n_rows; k++) {
        const struct bench_row *row = &r->result->rows[k];
        buf_printf(out, "%s,%d,%d,%.3f,%.4f,%.3f,%.1f,", phase_name(row->phase), row->context, row->tokens, row->tok_s, row->spread,
                   row->gb_s, row->gop_s);
        if (row->floor_tok_s > 0) buf_printf(out, "%.3f,%.4f,", row->floor_tok_s, row->share);
        else buf_addz(out, ",,");
        if (row->joules >= 0) buf_printf(out, "%.4f", row->joules);
        buf_printf(out, ",%.4f,%d,%d,", row->others, row->filled, row->final);
        add_csv_text(row->note, out);
        for (int i = 0; i < r->peers->n; i++) {
            double v = peer_value(&r->peers->list[i], row->phase, row->context);
            if (v > 0) buf_printf(out, ",%.3f", v);
            else buf_addc(out, ',');
        }
        buf_addc(out, '\n');
    }
}

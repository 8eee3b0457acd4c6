/* A benchmark's results as an SVG plot: tokens per second over context, both axes logarithmic, one panel a phase. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"

enum { PANEL_W = 460, PANEL_H = 300, LEFT = 64, TOP = 56, GAP = 90, MAX_SERIES = MAX_PEERS + 2 };

static const char *const colors[] = {"#0b6e4f", "#888888", "#c44536", "#1d4e89", "#e0a800", "#6a4c93", "#2a9d8f", "#b56576"};
enum { N_COLORS = sizeof colors / sizeof colors[0] };

/* What one panel shows. */
struct panel {
    const struct bench_report *r;
    enum phase phase;
    double x0, y0;         /* left, top of the drawing area */
    double lo_x, hi_x;     /* log2 of contexts */
    double lo_y, hi_y;     /* log10 of tokens per second */
};

/* Series 0 is lily, 1 the floor, then the peers. */
static double value(const struct panel *p, int series, const struct bench_row *row)
{
    if (series == 0) return row->tok_s;
    if (series == 1) return row->floor_tok_s;
    return peer_value(&p->r->peers->list[series - 2], p->phase, row->context);
}

static const char *series_name(const struct panel *p, int series)
{
    return series == 0 ? "lily" : series == 1 ? "floor of the measured limits" : p->r->peers->list[series - 2].name;
}

static void add_escaped(const char *s, struct buf *out)
{
    for (; *s; s++) {
        if (*s == '<') buf_addz(out, "&lt;");
        else if (*s == '&') buf_addz(out, "&amp;");
        else if (*s == '"') buf_addz(out, "&quot;");
        else buf_addc(out, (unsigned char)*s < 32 ? ' ' : *s);
    }
}

static double to_x(const struct panel *p, double context)
{
    return p->x0 + (log2(context) - p->lo_x) / (p->hi_x - p->lo_x) * PANEL_W;
}

static double to_y(const struct panel *p, double tok_s)
{
    return p->y0 + PANEL_H - (log10(tok_s) - p->lo_y) / (p->hi_y - p->lo_y) * PANEL_H;
}

/* False when nothing of this phase was measured. */
static bool find_ranges(struct panel *p)
{
    p->lo_x = p->lo_y = INFINITY;
    p->hi_x = p->hi_y = -INFINITY;
    for (int i = 0; i < p->r->result->n_rows; i++) {
        const struct bench_row *row = &p->r->result->rows[i];
        if (row->phase != p->phase || row->tok_s <= 0 || row->context < 1) continue;
        p->lo_x = fmin(p->lo_x, log2(row->context));
        p->hi_x = fmax(p->hi_x, log2(row->context));
        for (int s = 0; s < p->r->peers->n + 2; s++) {
            double v = value(p, s, row);
            if (v <= 0) continue;
            p->lo_y = fmin(p->lo_y, log10(v));
            p->hi_y = fmax(p->hi_y, log10(v));
        }
    }
    if (p->hi_x < p->lo_x) return false;
    if (p->hi_x - p->lo_x < 1) p->lo_x -= 0.5, p->hi_x += 0.5;
    p->lo_y = floor(p->lo_y * 4 - 0.2) / 4;
    p->hi_y = ceil(p->hi_y * 4 + 0.2) / 4;
    return true;
}

static void add_grid(const struct panel *p, struct buf *out)
{
    buf_printf(out, "<rect x=\"%.0f\" y=\"%.0f\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#bbb\"/>\n", p->x0, p->y0, PANEL_W, PANEL_H);
    for (int e = (int)ceil(p->lo_x); e <= (int)floor(p->hi_x); e++) {
        double x = to_x(p, exp2(e));
        buf_printf(out, "<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%.0f%s</text>\n", x, p->y0 + PANEL_H + 16,
                   e >= 10 ? exp2(e - 10) : exp2(e), e >= 10 ? "K" : "");
    }
    for (int e = (int)floor(p->lo_y); e <= (int)ceil(p->hi_y); e++)
        for (int k = 1; k < 10; k += k == 1 ? 1 : k == 2 ? 3 : 5) { /* 1, 2, 5 */
            double v = k * pow(10, e), l = log10(v);
            if (l < p->lo_y || l > p->hi_y) continue;
            buf_printf(out,
                       "<line x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#eee\"/><text x=\"%.0f\" y=\"%.1f\" "
                       "text-anchor=\"end\">%g</text>\n",
                       p->x0, p->x0 + PANEL_W, to_y(p, v), to_y(p, v), p->x0 - 6, to_y(p, v) + 4, v);
        }
}

static void add_series(const struct panel *p, int series, struct buf *out)
{
    const char *color = colors[series % N_COLORS];
    int n = 0;
    struct buf points = {0};
    for (int i = 0; i < p->r->result->n_rows; i++) {
        const struct bench_row *row = &p->r->result->rows[i];
        double v = row->phase == p->phase ? value(p, series, row) : 0;
        if (v <= 0) continue;
        double x = to_x(p, row->context), y = to_y(p, v);
        buf_printf(&points, "%s%.1f,%.1f", n++ ? " " : "", x, y);
        if (series != 1)
            buf_printf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" stroke=\"%s\" fill=\"%s\"/>\n", x, y, color,
                       series == 0 && !row->final ? "white" : color);
    }
    if (n) buf_printf(out, "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s/>\n", buf_str(&points), color,
                      series == 1 ? " stroke-dasharray=\"5 4\"" : "");
    buf_free(&points);
}

static void add_legend(const struct panel *p, int y, struct buf *out)
{
    for (int s = 0; s < p->r->peers->n + 2; s++) {
        buf_printf(out, "<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"4\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">", LEFT, y + 16 * s - 6,
                   colors[s % N_COLORS], LEFT + 20, y + 16 * s);
        add_escaped(series_name(p, s), out);
        buf_addz(out, "</text>\n");
    }
}

void report_svg(const struct bench_report *r, struct buf *out)
{
    int n_panels = 0, width = LEFT + 2 * (PANEL_W + GAP), height = TOP + PANEL_H + 60 + 16 * (r->peers->n + 2);
    buf_printf(out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
               "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"%d\" y=\"20\" font-size=\"14\">",
               width, height, width, height, LEFT);
    add_escaped(r->model_name, out);
    buf_addz(out, ", ");
    add_escaped(r->cpu, out);
    buf_printf(out, ", %s; tokens per second over context; open circles are not final</text>\n", model_device(r->model));
    for (int k = 0; k < 2; k++) {
        struct panel p = {.r = r, .phase = k ? PHASE_DECODE : PHASE_PREFILL, .x0 = LEFT + n_panels * (PANEL_W + GAP), .y0 = TOP};
        if (!find_ranges(&p)) continue;
        if (n_panels++ == 0) add_legend(&p, TOP + PANEL_H + 48, out);
        buf_printf(out, "<text x=\"%.0f\" y=\"%d\" font-weight=\"bold\">%s</text>\n", p.x0, TOP - 10, phase_name(p.phase));
        add_grid(&p, out);
        for (int s = r->peers->n + 1; s >= 0; s--) add_series(&p, s, out);
    }
    buf_addz(out, "</svg>\n");
}

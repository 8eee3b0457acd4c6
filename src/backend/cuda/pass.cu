/* One pass over a batch: rows and sequences to the card, logits back, decode passes as graphs. */
#include <cstring>

#include "backend/cuda/device.cuh"

int decode_groups(const struct batch *b, struct row_group *out)
{
    int n = 0, row = 0;
    for (int i = 0; i < b->n_seqs; row += b->seqs[i++].n) {
        if (b->seqs[i].n > DECODE_ROWS) return -1;
        if (!n || out[n - 1].n + b->seqs[i].n > DECODE_ROWS) out[n++] = (struct row_group){row, 0, i, 0};
        out[n - 1].n += b->seqs[i].n;
        out[n - 1].n_seqs++;
    }
    return n;
}

static bool can_choose(const struct cuda_backend *c, const struct batch *b)
{
    bool ok = b->phase == PHASE_DECODE && b->n_rows == b->n_seqs && b->n_rows <= c->base.limits.max_chosen && !c->base.watched;
    for (int i = 0; ok && i < b->n_seqs; i++) ok = b->seqs[i].seq->pick != NULL;
    return ok;
}

static bool fits(const struct cuda_backend *c, const struct batch *b)
{
    struct row_group groups[MAX_DECODE];
    if (b->n_seqs > MAX_SEQS || (b->choose && !can_choose(c, b))) return false;
    return b->phase == PHASE_PREFILL || (b->n_rows <= MAX_DECODE && decode_groups(b, groups) >= 0);
}

/* The host's place of something between id and pass in the workspace. */
static void *host_of(struct cuda_backend *c, const void *device)
{
    return c->host_rows + ((const uint8_t *)device - (const uint8_t *)c->ws.id);
}

static void fill_rows(struct cuda_backend *c, const struct batch *b)
{
    int row = 0;
    struct pass *p = (struct pass *)host_of(c, c->ws.pass);
    int32_t *id = (int32_t *)host_of(c, c->ws.id), *pos = (int32_t *)host_of(c, c->ws.pos), *seq_of = (int32_t *)host_of(c, c->ws.seq_of);
    p->n_rows = b->n_rows;
    p->n_seqs = b->n_seqs;
    for (int i = 0; i < b->n_seqs; i++) {
        const struct seq *s = b->seqs[i].seq;
        const int keep = s->kept ? s->kept_at - s->length : 0;
        p->seq[i] = (struct seq_view){s->recurrent, s->conv, s->device_pages, NULL, row, b->seqs[i].n, NULL, NULL, 0};
        if (keep > 0 && keep <= b->seqs[i].n) {
            p->seq[i].keep = s->kept;
            p->seq[i].keep_conv = s->kept + shape_recurrent_floats(&c->base.shape);
            p->seq[i].keep_rows = keep;
        }
        for (int t = 0; t < b->seqs[i].n; t++, row++) {
            id[row] = b->ids[row];
            pos[row] = s->length + t;
            seq_of[row] = i;
        }
    }
}

/* The next place in the ring of requests; waits until the card has read what was there. */
static struct pass_request *next_request(struct cuda_backend *c)
{
    const volatile u32 *done = &c->requests->done;
    while (c->n_requests - *done >= REQUESTS)
        if (cudaStreamQuery(c->stream) != cudaErrorNotReady && c->n_requests - *done >= REQUESTS) return NULL;
    return &c->requests->ring[c->n_requests++ % REQUESTS];
}

static void fill_request(struct cuda_backend *c, const struct batch *b)
{
    struct pass_request *q = next_request(c);
    if (!q) {
        c->error = cudaErrorUnknown;
        return;
    }
    int row = 0;
    q->n_rows = b->n_rows;
    q->n_seqs = b->n_seqs;
    for (int i = 0; i < b->n_seqs; i++) {
        struct seq *s = b->seqs[i].seq;
        q->seq[i] = (struct seq_view){s->recurrent, s->conv, s->device_pages, b->choose ? s->pick : NULL, row, b->seqs[i].n, NULL, NULL, 0};
        for (int t = 0; t < b->seqs[i].n; t++, row++) {
            q->id[row] = b->ids[row];
            q->pos[row] = s->length + t;
            q->seq_of[row] = i;
        }
    }
    __sync_synchronize();
}

/* Rows and sequences of a pass from the host's ring into the workspace; the token may be the one that the last pass chose. */
__global__ void k_feed(const volatile pass_requests *from, u32 *read, int32_t *id, int32_t *pos, int32_t *seq_of, pass *to, float *nowhere, size_t conv_at)
{
    const int i = threadIdx.x;
    const u32 nth = *read;
    const volatile pass_request &q = from->ring[nth % REQUESTS];
    if (i < q.n_seqs) {
        seq_view v = {};
        v.recurrent = q.seq[i].recurrent;
        v.conv = q.seq[i].conv;
        v.pages = q.seq[i].pages;
        v.pick = q.seq[i].pick;
        v.first = q.seq[i].first;
        v.n = q.seq[i].n;
        const bool chosen = v.pick && q.id[v.first] == ID_CHOSEN;
        if (v.pick && !chosen) v.pick->halted = 0;
        if (chosen && v.pick->halted) {
            v.recurrent = nowhere;
            v.conv = nowhere + conv_at;
        }
        to->seq[i] = v;
        for (int r = v.first; r < v.first + v.n; r++) {
            id[r] = chosen ? v.pick->next : q.id[r];
            pos[r] = q.pos[r];
            seq_of[r] = i;
        }
    }
    __syncthreads();
    if (i) return;
    to->n_rows = q.n_rows;
    to->n_seqs = q.n_seqs;
    *read = nth + 1;
    ((volatile pass_requests *)from)->done = nth + 1;
}

static void feed(struct cuda_backend *c)
{
    struct workspace *ws = &c->ws;
    launch(c, k_feed, dim3(1), 32, 0, c->requests, c->requests_read, ws->id, ws->pos, ws->seq_of, ws->pass, c->nowhere, shape_recurrent_floats(&c->base.shape));
    c->first_launch = true; /* kernels read these rows before they wait for their predecessor */
}

static struct captured *graph_of(struct cuda_backend *c, const struct batch *b)
{
    struct row_group groups[MAX_DECODE];
    if (b->phase != PHASE_DECODE || c->base.watched || b->n_rows > DECODE_ROWS || (!b->choose && b->n_logits != b->n_rows)) return NULL;
    return decode_groups(b, groups) == 1 ? &c->graphs[b->choose][b->n_rows][b->n_seqs] : NULL;
}

/*
 * Nobody has waited for a pass that was given up between its layers: the card may come to it later than the next one begins here, and
 * would write what it computes into pages of the next one's rows.
 */
static void send_rows(struct cuda_backend *c, const struct batch *b)
{
    c->error = cudaEventSynchronize(c->rows_read);
    if (c->error != cudaSuccess) return;
    fill_rows(c, b);
    c->error = cudaMemcpyAsync(c->ws.id, c->host_rows, c->ws.rows_bytes, cudaMemcpyHostToDevice, c->stream);
    cudaError_t e = cudaEventRecord(c->rows_read, c->stream);
    if (c->error == cudaSuccess) c->error = e;
}

void pass_begin(struct backend *be, const struct batch *batch)
{
    struct cuda_backend *c = cuda_of(be);
    cudaSetDevice(c->device);
    c->batch = batch;
    c->error = fits(c, batch) ? cudaSuccess : cudaErrorInvalidValue;
    c->gdn_seen = 0;
    c->pending = PENDING_NONE;
    c->normed_stale = false;
    c->first_launch = true;
    c->mode = PASS_EAGER;
    if (c->error != cudaSuccess) {
        c->mode = PASS_REPLAY; /* the steps launch nothing; the end says why */
        return;
    }
    struct captured *g = graph_of(c, batch);
    if (!g) {
        send_rows(c, batch);
        return;
    }
    fill_request(c, batch);
    c->mode = g->exec || c->error != cudaSuccess ? PASS_REPLAY : PASS_CAPTURE;
    if (c->mode == PASS_CAPTURE) {
        cudaError_t e = cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal);
        if (e != cudaSuccess && c->error == cudaSuccess) c->error = e;
        feed(c);
    }
}

/* Logits of up to DECODE_ROWS rows at a time, since a row may have a megabyte of them. */
static void head_of_rows(struct cuda_backend *c, const struct vector *norm, const struct matrix *head)
{
    struct workspace *ws = &c->ws;
    const struct batch *b = c->batch;
    for (int i = 0; i < b->n_logits; i += DECODE_ROWS) {
        int n = b->n_logits - i < DECODE_ROWS ? b->n_logits - i : DECODE_ROWS;
        decode_weigh(c, b->logit_rows + i, norm, n, ws->normed_head, ws->ss_head);
        decode_head(c, head, ws->normed_head, ws->ss_head, n, ws->logits);
        cudaError_t e = cudaMemcpyAsync(b->logits + (size_t)i * ws->ld_logits, ws->logits, (size_t)n * ws->ld_logits * sizeof(float),
                                        cudaMemcpyDeviceToHost, c->stream);
        if (e != cudaSuccess && c->error == cudaSuccess) c->error = e;
        c->first_launch = true;
    }
}

void pass_head(struct cuda_backend *c, const struct vector *norm, const struct matrix *head)
{
    struct workspace *ws = &c->ws;
    if (c->mode == PASS_CAPTURE) {
        decode_flush(c, norm);
        decode_head(c, head, ws->normed, ws->ss, c->batch->n_rows, ws->logits);
        if (c->batch->choose) decode_pick(c);
        return;
    }
    if (c->batch->phase == PHASE_DECODE) decode_flush(c, NULL);
    head_of_rows(c, norm, head);
}

static void finish_graph(struct cuda_backend *c)
{
    struct captured *g = graph_of(c, c->batch);
    cudaError_t e = cudaSuccess;
    if (c->mode == PASS_CAPTURE) {
        cudaGraph_t graph = NULL;
        e = cudaStreamEndCapture(c->stream, &graph);
        if (e == cudaSuccess && c->error == cudaSuccess) e = cudaGraphInstantiate(&g->exec, graph, 0);
        if (graph) cudaGraphDestroy(graph);
    }
    if (e == cudaSuccess && c->error == cudaSuccess) e = cudaGraphLaunch(g->exec, c->stream);
    if (e == cudaSuccess && c->error == cudaSuccess && c->batch->logits && !c->batch->choose)
        e = cudaMemcpyAsync(c->host_logits, c->ws.logits, (size_t)c->batch->n_logits * c->ws.ld_logits * sizeof(float), cudaMemcpyDeviceToHost, c->stream);
    if (e != cudaSuccess && c->error == cudaSuccess) c->error = e;
}

lily_status pass_end(struct backend *be, struct lily_err *err)
{
    struct cuda_backend *c = cuda_of(be);
    const struct batch *b = c->batch;
    if (!fits(c, b)) {
        c->batch = NULL;
        LILY_FAIL(err, LILY_ERR_UNSUPPORTED, "a batch of %d rows and %d sequences: CUDA decodes at most %d rows, %d of one sequence, and reads %d sequences",
                  b->n_rows, b->n_seqs, MAX_DECODE, DECODE_ROWS, MAX_SEQS);
    }
    if (b->phase == PHASE_DECODE) decode_flush(c, NULL);
    if (c->mode != PASS_EAGER) finish_graph(c);
    cudaError_t e = b->choose ? cudaSuccess : cudaStreamSynchronize(c->stream);
    if (c->error == cudaSuccess) c->error = e;
    if (c->error == cudaSuccess && c->mode != PASS_EAGER && b->logits && !b->choose)
        memcpy(b->logits, c->host_logits, (size_t)b->n_logits * c->ws.ld_logits * sizeof(float));
    c->batch = NULL;
    if (c->error != cudaSuccess) return cuda_failed(c->error, "a pass", err);
    for (int i = 0; i < b->n_seqs; i++) {
        b->seqs[i].seq->length += b->seqs[i].n;
        b->seqs[i].seq->launched += b->choose;
    }
    return LILY_OK;
}

void pass_read_hidden(struct backend *be, float *out)
{
    struct cuda_backend *c = cuda_of(be);
    if (c->batch->phase == PHASE_DECODE) decode_flush(c, NULL);
    cudaError_t e = cudaMemcpyAsync(out, c->ws.x, sizeof(float) * (size_t)c->batch->n_rows * (size_t)be->shape.hidden, cudaMemcpyDeviceToHost, c->stream);
    if (e == cudaSuccess) e = cudaStreamSynchronize(c->stream);
    if (e != cudaSuccess && c->error == cudaSuccess) c->error = e;
    c->first_launch = true;
}

void pass_graphs_free(struct cuda_backend *c)
{
    struct captured *all = &c->graphs[0][0][0];
    for (size_t i = 0; i < sizeof c->graphs / sizeof *all; i++)
        if (all[i].exec) cudaGraphExecDestroy(all[i].exec);
}

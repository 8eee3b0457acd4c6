/* Loads the tokenizer of a checkpoint folder. */
#include <stdlib.h>

#include "base/hash.h"
#include "base/mem.h"
#include "text/compiled.h"
#include "text/impl.h"
#include "text/source.h"

enum { MAX_FILE = 256 << 20 };

/* The files, mapped; those that the folder lacks are empty. */
enum { TOKENIZER_JSON, VOCAB_JSON, MERGES_TXT, TOKENIZER_CONFIG, N_FILES };
static const char *const NAMES[N_FILES] = {"tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json"};

struct sources {
    char *paths[N_FILES];          /* owned */
    struct file_map maps[N_FILES]; /* owned */
    char key[65];                  /* SHA-256 over all of them */
};

static void close_sources(struct sources *s)
{
    for (int i = 0; i < N_FILES; i++) {
        free(s->paths[i]);
        file_map_close(&s->maps[i]);
    }
}

static struct text_view text_of(const struct sources *s, int i)
{
    return (struct text_view){(const char *)s->maps[i].data, s->maps[i].size};
}

static lily_status open_sources(const char *dir, struct sources *s, struct lily_err *err)
{
    struct buf path = {0};
    for (int i = 0; i < N_FILES; i++) {
        file_join(&path, dir, NAMES[i]);
        s->paths[i] = buf_take(&path);
    }
    bool json = file_exists(s->paths[TOKENIZER_JSON]);
    if (!json && !(file_exists(s->paths[VOCAB_JSON]) && file_exists(s->paths[MERGES_TXT]))) {
        err_set(err, LILY_ERR_IO, "%s: found no tokenizer, expected tokenizer.json, or vocab.json and merges.txt", dir);
        err_hint(err, "download the checkpoint's tokenizer files into this folder");
        return LILY_ERR_IO;
    }
    for (int i = 0; i < N_FILES; i++) {
        bool wanted = i == TOKENIZER_CONFIG ? file_exists(s->paths[i]) : (i == TOKENIZER_JSON) == json;
        if (!wanted) continue;
        LILY_TRY(file_map_open(s->paths[i], &s->maps[i], err));
        if (s->maps[i].size > MAX_FILE)
            LILY_FAIL(err, LILY_ERR_LIMIT, "%s: %zu bytes, at most %d are accepted", s->paths[i], s->maps[i].size, MAX_FILE);
    }
    return LILY_OK;
}

static void hash_sources(struct sources *s)
{
    struct sha256 *h = sha256_begin();
    for (int i = 0; i < N_FILES; i++) {
        uint64_t size = s->maps[i].size;
        sha256_add(h, &size, sizeof size);
        if (size) sha256_add(h, s->maps[i].data, size);
    }
    sha256_end(h, s->key);
}

static lily_status named(const struct sources *s, int file, lily_status st, struct lily_err *err)
{
    if (st != LILY_OK) err_prefix(err, "%s", s->paths[file]);
    return st;
}

static lily_status read_config(const struct sources *s, struct vocabulary *v, struct lily_err *err)
{
    if (!s->maps[TOKENIZER_CONFIG].size) return LILY_OK;
    return named(s, TOKENIZER_CONFIG, tokenizer_config_added(text_of(s, TOKENIZER_CONFIG), v, err), err);
}

static lily_status read_json(const struct sources *s, struct vocabulary *v, bool *nfc, struct lily_err *err)
{
    struct tokenizer_json json;
    LILY_TRY(named(s, TOKENIZER_JSON, tokenizer_json_read(text_of(s, TOKENIZER_JSON), &json, err), err));
    LILY_TRY(named(s, TOKENIZER_JSON, tokenizer_json_added(&json, v, err), err));
    LILY_TRY(read_config(s, v, err));
    *nfc = json.nfc;
    return named(s, TOKENIZER_JSON, tokenizer_json_tokens(&json, v, err), err);
}

static lily_status read_pair(const struct sources *s, struct vocabulary *v, bool *nfc, struct lily_err *err)
{
    LILY_TRY(read_config(s, v, err));
    LILY_TRY(named(s, VOCAB_JSON, vocab_json_tokens(text_of(s, VOCAB_JSON), v, err), err));
    *nfc = true;
    return named(s, MERGES_TXT, merges_txt_merges(text_of(s, MERGES_TXT), v, err), err);
}

static lily_status build(const struct sources *s, struct tokenizer *t, struct lily_err *err)
{
    char half[17];
    bool nfc, json = s->maps[TOKENIZER_JSON].data != NULL || !s->maps[VOCAB_JSON].data;
    memcpy(half, s->key, 16);
    half[16] = 0;
    struct vocabulary *v = vocabulary_new(strtoull(half, NULL, 16));
    lily_status st = json ? read_json(s, v, &nfc, err) : read_pair(s, v, &nfc, err);
    if (st == LILY_OK)
        st = named(s, json ? TOKENIZER_JSON : VOCAB_JSON, vocabulary_build(v, nfc, &t->block, &t->block_size, err), err);
    vocabulary_free(v);
    return st == LILY_OK ? image_check(t->block, t->block_size, &t->image, err) : st;
}

lily_status tokenizer_finish(struct tokenizer *t, struct lily_err *err)
{
    t->added = added_new(&t->image);
    if (t->image.head->nfc) t->nfc = nfc_new();
    return split_new(&t->splitter, err);
}

lily_status tokenizer_load(const char *model_dir, const struct tokenizer_options *opt, struct tokenizer **out,
                           struct lily_err *err)
{
    struct sources s = {0};
    struct tokenizer *t = mem_new(sizeof *t);
    const char *cache_dir = opt && opt->cache_dir ? opt->cache_dir : "";
    lily_status st;
    *out = NULL;
    LILY_TRY_GOTO(open_sources(model_dir, &s, err), out);
    hash_sources(&s);
    if (!compiled_open(cache_dir, s.key, &t->map, &t->image)) {
        LILY_TRY_GOTO(build(&s, t, err), out);
        compiled_save(cache_dir, s.key, t->block, t->block_size);
    }
    LILY_TRY_GOTO(tokenizer_finish(t, err), out);
    *out = t;
    t = NULL;
out:
    close_sources(&s);
    tokenizer_free(t);
    return st;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t) return;
    added_free(t->added);
    split_free(t->splitter);
    nfc_free(t->nfc);
    mem_big_free(t->block, t->block_size);
    file_map_close(&t->map);
    free(t);
}

/* Which template a checkpoint carries, by the hash of its text. */
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "chat/template.h"

enum { MAX_TEMPLATE = 4 << 20, MAX_TOKENIZER_CONFIG = 64 << 20 };

static const struct {
    const char *sha256;
    enum template_version version;
} known_templates[] = {
    {"e84f32a23fdda27689f868aa4a1a5621f41133e51a48d7f3efcbea2839574259", TEMPLATE_QWEN36},
    {"a4aee8afcf2e0711942cf848899be66016f8d14a889ff9ede07bca099c28f715", TEMPLATE_QWEN35},
};

static bool match(const char *text, size_t n, enum template_version *version)
{
    char hex[65];
    if (n > 0 && text[n - 1] == '\n') n--; /* Jinja2 drops one final newline, so it says the same */
    sha256_of(text, n, hex);
    for (size_t i = 0; i < sizeof known_templates / sizeof known_templates[0]; i++) {
        if (strcmp(hex, known_templates[i].sha256) != 0) continue;
        *version = known_templates[i].version;
        return true;
    }
    return false;
}

/* tokenizer_config.json's chat_template: a text, or a list of {"name", "template"} of which "default" counts. */
static const struct json *configured_template(const struct json *config)
{
    const struct json *t = json_get(config, "chat_template");
    if (!t || json_kind(t) != JSON_ARRAY) return t;
    for (size_t i = 0; i < json_size(t); i++) {
        const struct json *name = json_get(json_at(t, i), "name");
        if (name && json_kind(name) == JSON_STRING && strcmp(json_string(name), "default") == 0)
            return json_get(json_at(t, i), "template");
    }
    return NULL;
}

static lily_status detect_file(const char *path, enum template_version *version, bool *known, struct lily_err *err)
{
    struct buf text = {0};
    lily_status st = file_read(path, MAX_TEMPLATE, &text, err);
    if (st == LILY_OK) *known = match(buf_str(&text), text.len, version);
    buf_free(&text);
    return st;
}

static lily_status detect_config(const char *path, enum template_version *version, bool *known, struct lily_err *err)
{
    struct json *config;
    LILY_TRY(json_parse_file(path, MAX_TOKENIZER_CONFIG, &config, err));
    const struct json *t = configured_template(config);
    if (t && json_kind(t) == JSON_STRING) *known = match(json_string(t), json_string_len(t), version);
    json_free(config);
    return LILY_OK;
}

lily_status template_detect(const char *model_dir, enum template_version *version, bool *known, struct lily_err *err)
{
    struct buf path = {0};
    lily_status st = LILY_OK;
    *version = TEMPLATE_QWEN36;
    *known = false;
    file_join(&path, model_dir, "chat_template.jinja");
    if (file_exists(buf_str(&path))) {
        st = detect_file(buf_str(&path), version, known, err);
    } else {
        file_join(&path, model_dir, "tokenizer_config.json");
        if (file_exists(buf_str(&path))) st = detect_config(buf_str(&path), version, known, err);
    }
    buf_free(&path);
    return st;
}

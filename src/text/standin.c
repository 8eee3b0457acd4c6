/* The stand-in tokenizer. */
#include "text/standin.h"

#include <stdbool.h>
#include <string.h>

#include "json/json.h"
#include "text/split.h"

static const struct {
    const char *text;
    bool special;
} added[] = {
    {"<|endoftext|>", true},    {"<|im_start|>", true},         {"<|im_end|>", true},        {"<|object_ref_start|>", true},
    {"<|object_ref_end|>", true}, {"<|box_start|>", true},      {"<|box_end|>", true},       {"<|quad_start|>", true},
    {"<|quad_end|>", true},     {"<|vision_start|>", true},     {"<|vision_end|>", true},    {"<|vision_pad|>", true},
    {"<|image_pad|>", true},    {"<|video_pad|>", true},        {"<tool_call>", false},      {"</tool_call>", false},
    {"<|fim_prefix|>", false},  {"<|fim_middle|>", false},      {"<|fim_suffix|>", false},   {"<|fim_pad|>", false},
    {"<|repo_name|>", false},   {"<|file_sep|>", false},        {"<tool_response>", false},  {"</tool_response>", false},
    {"<think>", false},         {"</think>", false},            {"<|audio_start|>", true},   {"<|audio_end|>", true},
    {"<tts_pad>", true},        {"<tts_text_bos>", true},       {"<tts_text_eod>", true},    {"<tts_text_bos_single>", true},
    {"<|audio_pad|>", true},
};
enum { N_ADDED = sizeof added / sizeof added[0] };

static void add_added(int first, struct buf *out)
{
    buf_addz(out, "  \"added_tokens\": [");
    for (int i = 0; i < N_ADDED; i++)
        buf_printf(out,
                   "%s\n    {\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                   "\"normalized\": false, \"special\": %s}",
                   i ? "," : "", first + i, added[i].text, added[i].special ? "true" : "false");
    buf_addz(out, "\n  ],\n");
}

/* The character that a byte is written as (text/alphabet.h), as JSON text. */
static void add_byte(int byte, int *n_moved, struct buf *out)
{
    bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    int c = itself ? byte : 256 + (*n_moved)++;
    if (c == '"' || c == '\\') buf_addc(out, '\\');
    if (c < 128) buf_addc(out, (char)c);
    else buf_printf(out, "%c%c", 0xc0 | c >> 6, 0x80 | (c & 63));
}

static void add_vocab(int rows, int first_added, struct buf *out)
{
    int n_moved = 0;
    buf_addz(out, "    \"vocab\": {");
    for (int i = 0; i < rows; i++) {
        if (i >= first_added && i < first_added + N_ADDED) continue;
        buf_addz(out, i ? ", \"" : "\"");
        if (i < 256) add_byte(i, &n_moved, out);
        else buf_printf(out, "\xc4\xa0w%d", i); /* U+0120 stands for a space */
        buf_printf(out, "\": %d", i);
    }
    buf_addz(out, "},\n");
}

static void add_pipeline(struct buf *out)
{
    static const char bytes[] =
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": false}";
    buf_addz(out, "  \"normalizer\": {\"type\": \"NFC\"},\n  \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [\n"
                  "    {\"type\": \"Split\", \"pattern\": {\"Regex\": \"");
    json_write_escaped(SPLIT_PATTERN, strlen(SPLIT_PATTERN), out);
    buf_printf(out, "\"}, \"behavior\": \"Isolated\", \"invert\": false},\n    %s]},\n  \"post_processor\": %s,\n  \"decoder\": %s,\n",
               bytes, bytes, bytes);
}

void standin_tokenizer(int rows, int first_added, struct buf *out)
{
    buf_addz(out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n");
    add_added(first_added, out);
    add_pipeline(out);
    buf_addz(out, "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
                  "    \"continuing_subword_prefix\": \"\",\n    \"end_of_word_suffix\": \"\",\n    \"fuse_unk\": false,\n"
                  "    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n");
    add_vocab(rows, first_added, out);
    buf_addz(out, "    \"merges\": []\n  }\n}\n");
}

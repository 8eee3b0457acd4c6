/*
 * Speed of the tokenizer on one core: loading the published tokenizer from its files and from the compiled form, and
 * encoding and decoding of whole files as one string. Processor time of this process, best of five.
 * usage: bench_tokenizer MODEL_DIR CACHE_DIR FILE...   (the cache folder gets the compiled form)
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/file.h"
#include "text/tokenizer.h"

enum { ROUNDS = 5, MAX_FILE = 64 << 20 };

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static struct tokenizer *load(const char *dir, const char *cache, const char *name)
{
    struct tokenizer_options opt = {cache};
    struct tokenizer *t = NULL;
    struct lily_err err;
    double best = 1e9;
    for (int i = 0; i < ROUNDS; i++) {
        tokenizer_free(t);
        double start = cpu_ms();
        if (tokenizer_load(dir, &opt, &t, &err) != LILY_OK) {
            fprintf(stderr, "%s\n", err.msg);
            exit(1);
        }
        double ms = cpu_ms() - start;
        if (ms < best) best = ms;
    }
    printf("load %-20s %8.1f ms\n", name, best);
    return t;
}

static void measure(const struct tokenizer *t, const char *path)
{
    struct buf text = {0}, back = {0};
    struct ids ids = {0};
    struct lily_err err;
    double encode = 1e9, decode = 1e9;
    if (file_read(path, MAX_FILE, &text, &err) != LILY_OK) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
    for (int i = 0; i < ROUNDS; i++) {
        ids_clear(&ids);
        buf_clear(&back);
        double start = cpu_ms();
        tokenizer_encode_special(t, text.data, text.len, &ids, NULL);
        double middle = cpu_ms();
        tokenizer_decode(t, ids.data, ids.n, true, &back);
        double end = cpu_ms();
        if (middle - start < encode) encode = middle - start;
        if (end - middle < decode) decode = end - middle;
    }
    printf("%-40s %8zu bytes %8zu ids  encode %6.1f MB/s  decode %6.1f MB/s\n", path, text.len, ids.n,
           (double)text.len / encode / 1e3, (double)text.len / decode / 1e3);
    ids_free(&ids);
    buf_free(&text);
    buf_free(&back);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: bench_tokenizer MODEL_DIR CACHE_DIR FILE...\n");
        return 2;
    }
    tokenizer_free(load(argv[1], NULL, "from files"));
    tokenizer_free(load(argv[1], argv[2], "(compiling)"));
    struct tokenizer *t = load(argv[1], argv[2], "compiled");
    for (int i = 3; i < argc; i++) measure(t, argv[i]);
    tokenizer_free(t);
    return 0;
}

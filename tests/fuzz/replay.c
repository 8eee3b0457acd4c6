/*
 * Runs a fuzz target without libFuzzer, over its kept corpus tests/fuzz/corpus/NAME (NAME: the program's name without
 * "fuzz_") and over the empty input. So every find stays a test with any compiler; a crash is the failure.
 * Usage: fuzz_NAME [FILE...]
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The input lies at the end of its own heap block, where a sanitizer sees a read past it. */
static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) != 0) {
        printf("FAIL %s: cannot be read\n", path);
        return 1;
    }
    long size = ftell(f);
    uint8_t *data = malloc(size ? (size_t)size : 1);
    rewind(f);
    int bad = !data || fread(data, 1, (size_t)size, f) != (size_t)size;
    fclose(f);
    printf("%s\n", path);
    fflush(stdout); /* the last line before a crash names the input */
    if (!bad) LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    return bad;
}

static int is_file(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

static int run_folder(const char *dir, int *failed)
{
    struct dirent **entries;
    int n = scandir(dir, &entries, is_file, alphasort);
    for (int i = 0; i < n; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", dir, entries[i]->d_name);
        *failed += run_file(path);
        free(entries[i]);
    }
    if (n >= 0) free(entries);
    return n > 0 ? n : 0;
}

int main(int argc, char **argv)
{
    const char *name = strrchr(argv[0], '/');
    char dir[512];
    int n = argc - 1, failed = 0;
    name = name ? name + 1 : argv[0];
    snprintf(dir, sizeof dir, "tests/fuzz/corpus/%s", strncmp(name, "fuzz_", 5) == 0 ? name + 5 : name);
    for (int i = 1; i < argc; i++) failed += run_file(argv[i]);
    if (argc == 1) {
        n = 1 + run_folder(dir, &failed);
        LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    }
    printf("%d passed, %d failed, 0 skipped\n", n - failed, failed);
    return failed != 0;
}

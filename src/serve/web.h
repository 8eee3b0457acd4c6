/*
 * The page's files, as bytes in the program: what mk/embed.sh makes of src/serve/web and of the two packaged libraries that
 * render Markdown. Immutable; any thread.
 */
#ifndef LILY_SERVE_WEB_H
#define LILY_SERVE_WEB_H

#include <stddef.h>

struct web_bytes {
    const unsigned char *at;
    size_t n;
};

struct web_file {
    const char *name; /* behind /web/ */
    const char *tag;  /* hexadecimal, of the content */
    struct web_bytes plain, gz;
};

extern const struct web_file web_files[]; /* (n_web_files) */
extern const int n_web_files;

#endif
